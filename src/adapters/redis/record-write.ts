/**
 * A write of a connection that was given up may arrive behind that of the next one: a network that heals brings what the kernel
 * has kept, and a key would work again that was revoked meanwhile. So no change replaces the record of a later one. What is no
 * record of any is replaced.
 * KEYS: the record. ARGV: its text, the revision of the change.
 */
const unlessLater = `
  local known, held = pcall(cjson.decode, redis.pcall('GET', KEYS[1]) or '')
  local revision = known and type(held) == 'table' and tonumber(held.revision)
  if not revision or revision <= tonumber(ARGV[2]) then redis.call('SET', KEYS[1], ARGV[1]) end`;

/**
 * The command that writes a record, or takes it away.
 * @param name with the prefix of the store
 * @param change the revision of the newest change that it has; null: it is written anew, whatever is there
 */
export function recordWrite(name: string, value: object | null, change: number | null): readonly [string, ...string[]] {
  if (value === null) return ['DEL', name];
  const text = JSON.stringify(value);
  if (change === null) return ['SET', name, text];
  // What is put back to be written once more has an older number than it was written under; the record may have a newer one.
  const newest = 'revision' in value ? Math.max(change, Number(value.revision)) : change;
  return ['EVAL', unlessLater, '1', name, text, String(newest)];
}
