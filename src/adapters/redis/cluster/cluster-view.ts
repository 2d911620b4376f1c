import { slotCount } from './hash-slots.js';

/** A master of a Cluster and its address. */
export interface ClusterNode {
  readonly id: string;
  readonly host: string;
  readonly port: number;
  /** Every host name and address by which a redirection can name this node. */
  readonly hosts: readonly string[];
}

/** The masters and slots of a Cluster, as one node reports them. */
export interface ClusterView {
  readonly epoch: number;
  /** All masters, including those without slots. */
  readonly masters: readonly ClusterNode[];
  /** The slots of each master, as ranges `from-to` or single numbers. */
  readonly ranges: readonly (readonly string[])[];
  /** Epoch, masters and slots as one string, equal on nodes with the same view. */
  readonly fingerprint: string;
}

/** The node that was queried, and whether the connection uses TLS. */
export interface QueriedNode {
  readonly host: string;
  readonly port: number;
  /**
   * Whether connections use TLS. If so, nodes are addressed by their announced host name, because the certificate may
   * contain only that name.
   */
  readonly secure: boolean;
}

const maxMasters = 1_000;

/**
 * Parses the replies to CLUSTER INFO and CLUSTER NODES.
 * @throws Error if the node reports a state other than ok, no epoch, or too many masters
 */
export function readView(info: string, nodes: string, asked: QueriedNode): ClusterView {
  const state = /^cluster_state:(\w+)\r?$/m.exec(info)?.[1];
  if (state !== 'ok') throw new Error(`a node of the Cluster reports the state ${state ?? 'unknown'}`);
  const epoch = Number(/^cluster_current_epoch:(\d+)\r?$/m.exec(info)?.[1] ?? NaN);
  if (!Number.isSafeInteger(epoch)) throw new Error('a node of the Cluster reports no epoch');
  const seen = nodes
    .split('\n')
    .map((line) => readMaster(line, asked))
    .filter((master) => master !== null)
    .toSorted((one, other) => (one.node.id < other.node.id ? -1 : 1));
  if (seen.length > maxMasters) throw new Error(`the Cluster has more than ${maxMasters} masters`);
  return {
    epoch,
    masters: seen.map(({ node }) => node),
    ranges: seen.map(({ ranges }) => ranges),
    fingerprint: [epoch, ...seen.map(({ node, ranges }) => `${node.id}:${ranges.join()}`)].join(' '),
  };
}

/**
 * Returns the master of each slot, as an index into `masters`.
 * @throws Error if a slot has no master
 */
export function ownersOf({ ranges }: ClusterView): Uint16Array {
  const owners = new Uint16Array(slotCount).fill(maxMasters);
  ranges.forEach((ofOne, master) => {
    for (const range of ofOne) {
      const [first = '', last = first] = range.split('-');
      owners.fill(master, Number(first), Number(last) + 1);
    }
  });
  if (owners.includes(maxMasters)) throw new Error('the Cluster does not cover all slots');
  return owners;
}

/**
 * Parses a line of CLUSTER NODES. Returns null for a replica, and for a master that has failed or is not fully known
 * yet.
 */
function readMaster(line: string, asked: QueriedNode): { node: ClusterNode; ranges: string[] } | null {
  const [id = '', address = '', flags = '', , , , , , ...slots] = line.trim().split(' ');
  const is = new Set(flags.split(','));
  if (!is.has('master') || is.has('fail') || is.has('handshake') || is.has('noaddr')) return null;
  const [, ip = '', port = '', name = ''] = /^(.*):(\d+)(?:@\d+)?(?:,([^,]*).*)?$/.exec(address) ?? [];
  // A node that no other node has contacted yet does not know its own address. So use the address at which the node was
  // queried.
  const known = ip === '' ? asked.host : ip;
  return {
    node: {
      id,
      host: asked.secure && name !== '' ? name : known,
      port: Number(port),
      hosts: [known, ip, name],
    },
    // A slot in brackets is being migrated. Its present owner also lists it without brackets.
    ranges: slots.filter((slot) => /^\d+(?:-\d+)?$/.test(slot)),
  };
}
