import fc from 'fast-check';
import t from 'tap';
import { hasFixedSegments } from '../../src/edge/request/request-data.js';
import { createRouteTable } from '../../src/edge/request/routes.js';
import type { RouteMatch } from '../../src/edge/request/routes.js';

const route = (path: string) => ({ path, upstream: `of ${path}`, resource: 'any' });

/** Creates a table of these routes. Returns a function that finds the route of a path; null if it is not forwarded. */
function finderOf(basePath: string, routes: ReturnType<typeof route>[]): (path: string) => RouteMatch | null {
  const table = createRouteTable({ basePath, routes });
  return (path) => {
    const place = table(path);
    return 'route' in place ? place : null;
  };
}

t.test('the longest route wins, in any order of configuration', (t) => {
  const paths = ['/dev', '/payouts', '/dev/payouts', '/transactions', '/dev/payouts/batch'];
  const rows: readonly [string, string | null, string?][] = [
    ['/v1/payouts', '/payouts', '/payouts'],
    ['/v1/payouts/', '/payouts', '/payouts/'],
    ['/v1/payouts/1/2', '/payouts', '/payouts/1/2'],
    ['/v1/dev', '/dev', '/dev'],
    ['/v1/dev/customers', '/dev', '/dev/customers'],
    ['/v1/dev/payouts', '/dev/payouts', '/dev/payouts'],
    ['/v1/dev/payouts/1', '/dev/payouts', '/dev/payouts/1'],
    ['/v1/dev/payouts/batch/1', '/dev/payouts/batch', '/dev/payouts/batch/1'],
    ['/v1/dev/payoutsx', '/dev', '/dev/payoutsx'],
    ['/v1/dev/payouts-batch', '/dev', '/dev/payouts-batch'],
    ['/v1/payoutsx', null],
    ['/v1/payouts.json', null],
    ['/v1/Payouts', null],
    ['/v1/payout', null],
    ['/v1/developers', null],
    ['/v1/v1/payouts', null],
    ['/v1', null],
    ['/v1/', null],
    ['/', null],
    ['', null],
    ['/payouts', null],
    ['/v2/payouts', null],
    ['/v1payouts', null],
    ['/V1/payouts', null],
    ['/v11/payouts', null],
    ['/x/v1/payouts', null],
  ];
  for (const ordered of [paths, paths.toReversed(), paths.toSorted()]) {
    const find = finderOf('/v1', ordered.map(route));
    for (const [path, expected, upstreamPath] of rows) {
      const match = find(path);
      t.equal(match?.route.path ?? null, expected, path);
      if (upstreamPath !== undefined) t.equal(match?.upstreamPath, upstreamPath);
    }
  }
  t.end();
});

t.test('the base path is stripped: the upstream gets the rest, with no base path or one of several segments', (t) => {
  const bare = finderOf('', [route('/payouts')]);
  t.match(bare('/payouts/1'), { upstreamPath: '/payouts/1', route: { upstream: 'of /payouts' } });
  t.equal(bare('/v1/payouts'), null);
  const deep = finderOf('/api/v1', [route('/payouts')]);
  t.match(deep('/api/v1/payouts'), { upstreamPath: '/payouts' });
  t.equal(deep('/api/payouts'), null);
  t.equal(finderOf('/v1', [])('/v1/payouts'), null);
  t.end();
});

t.test("a route matches exactly when its segments are a prefix of the path's; the longest match wins", (t) => {
  const segments = fc.array(fc.constantFrom('a', 'b', 'aa', 'a-b', 'ab'), { minLength: 1, maxLength: 3 });
  const joined = segments.map((names) => `/${names.join('/')}`);
  fc.assert(
    fc.property(fc.uniqueArray(joined, { maxLength: 8 }), joined, (paths, path) => {
      const asked = path.split('/');
      const expected = paths
        .map((one) => one.split('/'))
        .filter((names) => names.every((name, index) => asked[index] === name))
        .toSorted((one, other) => other.length - one.length)[0];
      const found = finderOf('/v1', paths.map(route))(`/v1${path}`);
      return (found?.route.path ?? null) === (expected?.join('/') ?? null);
    }),
  );
  t.end();
});

t.test('each refused path has its code, in order of precedence', (t) => {
  const table = createRouteTable({
    basePath: '/v1',
    routes: ['/payouts', '/dev/payouts', '/dev', '/dev/Reports.v2/all'].map(route),
  });
  const rows: readonly [path: string, code: string | null][] = [
    ['/v1/dev/payouts', null],
    ['/v1/dev/Payouts', 'not_found'],
    ['/v1/dev/payouts.json', 'not_found'],
    ['/v1/dev/%70ayouts', 'not_found'],
    ['/v1/dev/payouts;x', 'not_found'],
    ['/v1/dev/payout\u00df', 'not_found'],
    ['/v1/dev/\uff50ayouts', 'not_found'],
    ['/v1/dev/customers%20', 'not_found'],
    // A route with an unusual spelling: every other spelling of it is a look-alike.
    ['/v1/dev/Reports.v2/all/1', null],
    ['/v1/dev/reports.v2/all', 'not_found'],
    ['/v1/dev/Reports', 'not_found'],
    ['/v1/dev/Reports.v2.json/all', 'not_found'],
    ['/v1/dev/reports.v3', 'not_found'],
    ['/v1/dev/Reports.v2/ALL', 'not_found'],
    ['/v1/dev/Reports.v2/other', null],
    ['/v1/dev/Reports.v2/other.x;y', 'not_found'],
    ['/v1/dev/Reports-v2/ALL', null],
    // A segment that a service could read as a segment of a route yields 404, even if the rest of the path is invalid.
    // An invalid path without such a segment yields `invalid_path`.
    ['/v1/dev/Payouts/../x', 'not_found'],
    ['/v1/dev/..;/payouts', 'not_found'],
    ['/v1/dev/%2f', 'not_found'],
    ['/v1/dev/customers/..;/payouts', 'invalid_path'],
    ['/v1/dev/../payouts', 'invalid_path'],
    ['/v1/dev//payouts', 'invalid_path'],
    ['/v1/unknown/../payouts', 'invalid_path'],
    ['/v1/unknown/payouts', 'not_found'],
    ['*', 'invalid_path'],
    ['xv1/payouts', 'invalid_path'],
  ];
  for (const [path, code] of rows) {
    const place = table(path);
    t.equal('code' in place ? place.code : null, code, path);
  }
  t.end();
});

t.test('routes that differ only in case or after a dot are distinct, and do not shadow each other', (t) => {
  const paths = ['/api/v1.0/a', '/api/v1.1/a', '/dev', '/dev/payouts', '/dev/payouts.csv/x', '/Dev/payouts/x'];
  const find = finderOf('/v1', paths.map(route));
  const rows: readonly [path: string, expected: string | null][] = [
    ['/v1/api/v1.0/a', '/api/v1.0/a'],
    ['/v1/api/v1.1/a/b', '/api/v1.1/a'],
    ['/v1/api/v1.2/a', null],
    ['/v1/api/v1/a', null],
    ['/v1/dev/payouts', '/dev/payouts'],
    ['/v1/dev/payouts/y', '/dev/payouts'],
    ['/v1/dev/payouts.csv/x', '/dev/payouts.csv/x'],
    ['/v1/Dev/payouts/x', '/Dev/payouts/x'],
    // A lenient service would read each of these as a path of one route. A literal match would find another route, or
    // none. So the gateway forwards none of them.
    ['/v1/dev/payouts.csv', null],
    ['/v1/dev/payouts.csv/y', null],
    ['/v1/dev/payouts/x', null],
    ['/v1/Dev/payouts', null],
    ['/v1/Dev/customers', null],
  ];
  for (const [path, expected] of rows) t.equal(find(path)?.route.path ?? null, expected, path);
  t.end();
});

/**
 * Returns the segments of a path as the most lenient service reads them: it decodes, normalizes, ignores case, and
 * strips parameters and suffixes.
 */
function lenientSegments(path: string): string[] {
  const segments: string[] = [];
  for (const raw of decodeURIComponent(path.replace(/%(?![0-9a-f]{2})/gi, '%25')).split(/[/\\]/)) {
    const segment = lenient(raw);
    if (segment === '..') segments.pop();
    else if (segment !== '' && segment !== '.') segments.push(segment);
  }
  return segments;
}

function lenient(segment: string): string {
  const [name = ''] = segment.split(';');
  return /^\.+$/.test(name) ? name : name.toLowerCase().replace(/^(.[^.]*)\..*$/s, '$1');
}

t.test('no path is forwarded that a lenient service would map to another resource', (t) => {
  const names = ['dev', 'Dev', 'payouts', 'Payouts', 'payouts.csv', 'wallets', 'v1.1', 'v1.2', '.well-known', 'all'];
  const configured = fc
    .array(fc.constantFrom(...names), { minLength: 1, maxLength: 3 })
    .map((one) => `/${one.join('/')}`);
  const letter = (text: string, at: number): string => text.slice(at, at + 1);
  const spelt = fc.tuple(fc.constantFrom(...names), fc.nat(7), fc.nat(11)).map(([name, at, how]) => {
    const [before, one, after] = [name.slice(0, at), letter(name, at), name.slice(at + 1)];
    if (how === 0) return name.toUpperCase();
    if (how === 1) return `${before}${one.toUpperCase()}${after}`;
    if (how === 2 && one !== '') return `${before}%${one.charCodeAt(0).toString(16)}${after}`;
    return `${name}${['', '', '', '.json', '.', ';x', '%3Bx', '%2ecsv', '.a.b'][how - 3] ?? ''}`;
  });
  const odd = fc.constantFrom('', '.', '..', '..;', '%2e%2e', 'x%2fdev', 'x%5c..', ';', 'other', 'Other.json;a', '%');
  const segment = fc.oneof({ weight: 8, arbitrary: spelt }, { weight: 1, arbitrary: odd });
  let forwarded = 0;
  let refused = 0;
  fc.assert(
    fc.property(
      fc.constantFrom('', '/v1', '/Api/v1.2'),
      fc.uniqueArray(configured, { minLength: 1, maxLength: 8 }),
      fc.nat(9),
      fc.array(segment, { maxLength: 4 }),
      (basePath, paths, exactly, ends) => {
        // Routes that a lenient service confuses must have the same resource, or the configuration is invalid.
        const routes = paths.map((path) => ({ ...route(path), resource: lenientSegments(path).join('/') }));
        const path = `${basePath}${exactly < 5 ? (paths[exactly] ?? '') : ''}/${ends.join('/')}`;
        const match = finderOf(basePath, routes)(path);
        if (match === null) {
          refused += 1;
          return true;
        }
        forwarded += 1;
        const asked = lenientSegments(match.upstreamPath);
        const meant = routes
          .map((one) => ({ ...one, segments: lenientSegments(one.path) }))
          .filter(({ segments }) => segments.every((name, index) => asked[index] === name))
          .toSorted((one, other) => other.segments.length - one.segments.length)[0];
        return path === basePath + match.upstreamPath && meant?.resource === match.route.resource;
      },
    ),
    { numRuns: 20_000 },
  );
  t.ok(forwarded > 1000 && refused > 1000, `${forwarded} forwarded, ${refused} refused`);
  t.end();
});

t.test('a path without a look-alike of a configured segment is forwarded unchanged', (t) => {
  const routes = ['/payouts', '/dev', '/dev/payouts'].map(route);
  const free = fc
    .string({ unit: 'binary-ascii', minLength: 1, maxLength: 12 })
    .map((text) => `/${text}`)
    .filter(hasFixedSegments);
  fc.assert(
    fc.property(fc.constantFrom('/payouts', '/dev/payouts', '/dev/customers'), free, (path, below) => {
      const match = finderOf('/v1', routes)(`/v1${path}${below}`);
      return match?.upstreamPath === path + below && match.route.path === (path === '/dev/customers' ? '/dev' : path);
    }),
    { numRuns: 1000 },
  );
  t.end();
});
