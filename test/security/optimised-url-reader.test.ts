import t from 'tap';
import { compileOriginPatterns, namesOnionService } from '../../src/policy/origins.js';

/**
 * After some ten thousand calls V8 optimises `URL.canParse`, and on Node 20 it then refuses all Latin-1 beyond ASCII: a gateway
 * that had run for a while did not see an onion service behind such a name any more.
 */
t.test('a name is read after very many others as it was before', (t) => {
  const disguised = ['https://abc.on\u{ad}ion/', 'abc.\u{ba}ni\u{ba}n', 'https://abc.on\u{ad}ion:8443/path'];
  const claims = ['https://m\u{fc}nchen.example', 'https://shop.ex\u{ad}ample', 'https://sh\u{f6}p.example'];
  const look = (): unknown[] => {
    const list = compileOriginPatterns(['m\u{fc}nchen.example', 'shop.example']);
    // Each with a path of its own: what was said before would be remembered.
    return [
      ...disguised.map((name) => namesOnionService([name])),
      ...claims.map((value) => list.matches({ header: 'referer', value: `${value}/${Math.random()}` })),
    ];
  };
  const expected = [true, true, true, true, true, false];
  t.strictSame(look(), expected);
  for (let count = 0; count < 100_000; count += 1) compileOriginPatterns(['shop.example']);
  t.strictSame(look(), expected);
  t.end();
});
