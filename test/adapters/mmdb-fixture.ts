import { parseIpAddress } from '../../src/policy/ip-address.js';

/** A value in a database. */
type Value = string | number | boolean | { readonly [name: string]: Value };

/** A network and its value. */
type MmdbEntry = readonly [cidr: string, value: Value];

/** The contents of a database. */
export interface MmdbSource {
  readonly type: string;
  readonly ipVersion?: 4 | 6;
  readonly entries: readonly MmdbEntry[];
}

type Node = [Branch, Branch];
/** A child node, the offset of data, or no data. */
type Branch = Node | number | null;

/** Builds a small database in MaxMind's format (version 2.0, 24-bit records). */
export function mmdb({ type, ipVersion = 6, entries }: MmdbSource): Buffer {
  const root: Node = [null, null];
  const data: Buffer[] = [];
  let length = 0;
  for (const [cidr, value] of entries) {
    const encoded = encode(value);
    insert(root, bitsOf(cidr, ipVersion), length);
    data.push(encoded);
    length += encoded.length;
  }
  const nodes = flatten(root);
  const indexes = new Map(nodes.map((node, index) => [node, index]));
  const tree = Buffer.concat(
    nodes.flatMap((node) =>
      node.map((branch) => {
        const target =
          branch === null
            ? nodes.length
            : typeof branch === 'number'
              ? nodes.length + 16 + branch
              : (indexes.get(branch) ?? 0);
        return Buffer.from([target >> 16, (target >> 8) & 255, target & 255]);
      }),
    ),
  );
  const metadata = encode({
    binary_format_major_version: 2,
    binary_format_minor_version: 0,
    build_epoch: 1_700_000_000,
    database_type: type,
    ip_version: ipVersion,
    node_count: nodes.length,
    record_size: 24,
  });
  const marker = Buffer.from('abcdef4d61784d696e642e636f6d', 'hex');
  return Buffer.concat([tree, Buffer.alloc(16), ...data, marker, metadata]);
}

/** The path from the root of the tree to a network. In an IPv6 tree, the path of an IPv4 network begins with 96 zeros. */
function bitsOf(cidr: string, ipVersion: 4 | 6): string {
  const [text = '', prefix] = cidr.split('/');
  const address = parseIpAddress(text);
  if (address === null) throw new Error(`${text} is no address`);
  const width = address.family === 4 ? 32 : 128;
  const bits = address.value
    .toString(2)
    .padStart(width, '0')
    .slice(0, Number(prefix ?? width));
  return address.family === 4 && ipVersion === 6 ? '0'.repeat(96) + bits : bits;
}

function insert(root: Node, bits: string, offset: number): void {
  let node = root;
  bits.split('').forEach((bit, depth) => {
    const side = bit === '1' ? 1 : 0;
    if (depth === bits.length - 1) {
      node[side] = offset;
      return;
    }
    const below = node[side];
    const next: Node = Array.isArray(below) ? below : [null, null];
    node[side] = next;
    node = next;
  });
}

function flatten(root: Node): Node[] {
  const nodes = [root];
  for (const node of nodes) for (const branch of node) if (Array.isArray(branch)) nodes.push(branch);
  return nodes;
}

function encode(value: Value): Buffer {
  if (typeof value === 'string') return Buffer.concat([control(2, Buffer.byteLength(value)), Buffer.from(value)]);
  if (typeof value === 'boolean') return Buffer.from([value ? 1 : 0, 14 - 7]);
  if (typeof value === 'number') {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(value);
    return Buffer.concat([control(6, 4), bytes]);
  }
  const fields = Object.entries(value);
  return Buffer.concat([
    control(7, fields.length),
    ...fields.flatMap(([name, field]) => [encode(name), encode(field)]),
  ]);
}

function control(type: number, size: number): Buffer {
  return size < 29 ? Buffer.from([(type << 5) | size]) : Buffer.from([(type << 5) | 29, size - 29]);
}
