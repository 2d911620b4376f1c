import t from 'tap';
import { configDigest } from '../../src/config/redact.js';
import { loadConfig } from '../../src/config/load.js';

const digestOf = (text: string, env = {}): string => configDigest(loadConfig({ text, env }));

t.test('the digest of a configuration tells whether two are the same', (t) => {
  t.match(digestOf(''), /^[0-9a-f]{16}$/);
  t.equal(digestOf('environment: live'), digestOf(''), 'what is written out is what is left out');
  t.not(digestOf('environment: test'), digestOf(''));
  const routes = 'routes: []\nupstreams: ';
  t.equal(
    digestOf(`${routes}{ a: { url: "http://a" }, b: { url: "http://b" } }`),
    digestOf(`${routes}{ b: { url: "http://b" }, a: { url: "http://a" } }`),
    'the order of names says nothing',
  );
  const database = 'registry: { database: { url: "postgres://u:${PASSWORD}@h/d" } }';
  t.equal(digestOf(database, { PASSWORD: 'one' }), digestOf(database, { PASSWORD: 'two' }), 'a password is not in it');
  t.end();
});
