import t from 'tap';
import { configDigest } from '../../src/config/redact.js';
import { loadConfig } from '../../src/config/load.js';

const digestOf = (text: string, env = {}): string => configDigest(loadConfig({ text, env }));

t.test('the digest is equal for equal configurations and differs for different ones', (t) => {
  t.match(digestOf(''), /^[0-9a-f]{16}$/);
  t.equal(digestOf('environment: live'), digestOf(''), 'an explicit default equals an omitted option');
  t.not(digestOf('environment: test'), digestOf(''));
  const routes = 'routes: []\nupstreams: ';
  t.equal(
    digestOf(`${routes}{ a: { url: "http://a" }, b: { url: "http://b" } }`),
    digestOf(`${routes}{ b: { url: "http://b" }, a: { url: "http://a" } }`),
    'the order of names does not matter',
  );
  const database = 'registry: { database: { url: "postgres://u:${PASSWORD}@h/d" } }';
  t.equal(
    digestOf(database, { PASSWORD: 'one' }),
    digestOf(database, { PASSWORD: 'two' }),
    'a password does not affect the digest',
  );
  t.end();
});
