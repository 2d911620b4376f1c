import { slotCount } from './hash-slots.js';

/** A master of a Cluster, and where it is. */
export interface ClusterNode {
  readonly id: string;
  readonly host: string;
  readonly port: number;
  /** Every name and address that the others may call it by. */
  readonly hosts: readonly string[];
}

/** What one node sees of its Cluster. */
export interface ClusterView {
  readonly epoch: number;
  /** The masters, also those that have no slot yet. */
  readonly masters: readonly ClusterNode[];
  /** For each master its slots, as `from-to` and single numbers. */
  readonly ranges: readonly (readonly string[])[];
  /** Epoch, masters and slots as one text: two nodes that see the same say the same. */
  readonly fingerprint: string;
}

/** Who was asked, and how. */
export interface Asked {
  readonly host: string;
  readonly port: number;
  /** Over TLS the name that a node announces is connected to, because its certificate may name nothing else. */
  readonly secure: boolean;
}

const mostMasters = 1_000;

/**
 * Reads the answers to CLUSTER INFO and CLUSTER NODES.
 * @throws Error where the node does not see a whole Cluster
 */
export function readView(info: string, nodes: string, asked: Asked): ClusterView {
  const state = /^cluster_state:(\w+)\r?$/m.exec(info)?.[1];
  if (state !== 'ok') throw new Error(`a node of the Cluster says that its state is ${state ?? 'unknown'}`);
  const epoch = Number(/^cluster_current_epoch:(\d+)\r?$/m.exec(info)?.[1] ?? NaN);
  if (!Number.isSafeInteger(epoch)) throw new Error('a node of the Cluster tells no epoch');
  const seen = nodes
    .split('\n')
    .map((line) => readMaster(line, asked))
    .filter((master) => master !== null)
    .toSorted((one, other) => (one.node.id < other.node.id ? -1 : 1));
  if (seen.length > mostMasters) throw new Error(`the Cluster has more than ${mostMasters} masters`);
  return {
    epoch,
    masters: seen.map(({ node }) => node),
    ranges: seen.map(({ ranges }) => ranges),
    fingerprint: [epoch, ...seen.map(({ node, ranges }) => `${node.id}:${ranges.join()}`)].join(' '),
  };
}

/**
 * Which master has which slot, as an index into `masters`.
 * @throws Error where a slot has none
 */
export function ownersOf({ ranges }: ClusterView): Uint16Array {
  const owners = new Uint16Array(slotCount).fill(mostMasters);
  ranges.forEach((ofOne, master) => {
    for (const range of ofOne) {
      const [first = '', last = first] = range.split('-');
      owners.fill(master, Number(first), Number(last) + 1);
    }
  });
  if (owners.includes(mostMasters)) throw new Error('the Cluster does not cover all slots');
  return owners;
}

/** A line of CLUSTER NODES as it describes a master that is not known to have failed. */
function readMaster(line: string, asked: Asked): { node: ClusterNode; ranges: string[] } | null {
  const [id = '', address = '', flags = '', , , , , , ...slots] = line.trim().split(' ');
  const is = new Set(flags.split(','));
  if (!is.has('master') || is.has('fail') || is.has('handshake') || is.has('noaddr')) return null;
  const [, ip = '', port = '', name = ''] = /^(.*):(\d+)(?:@\d+)?(?:,([^,]*).*)?$/.exec(address) ?? [];
  // A node that nobody has met yet does not know its own address.
  const known = ip === '' ? asked.host : ip;
  return {
    node: {
      id,
      host: asked.secure && name !== '' ? name : known,
      port: Number(port),
      hosts: [known, ip, name],
    },
    // What is in brackets is being moved, and still belongs to whom it did.
    ranges: slots.filter((slot) => /^\d+(?:-\d+)?$/.test(slot)),
  };
}
