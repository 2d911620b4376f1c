import type { IncomingMessage } from 'node:http';
import type { Teardown } from '../adapters/redis-server.js';
import { startServer } from '../start-server.js';
import type { Manifest } from './render.js';

interface Stored extends Manifest {
  readonly data?: Readonly<Record<string, string>>;
  readonly immutable?: boolean;
}

/**
 * Starts a server with the part of the Kubernetes API that helm needs to install and upgrade a release. At first its
 * only object is the ConfigMap that Kubernetes creates in each namespace. It stores new objects. A patch changes
 * nothing.
 * @param kinds the known kinds, each as `apiVersion kind`
 * @returns the URL, and functions to read and change Secrets and to refuse an object
 */
export async function startKubernetes(t: Teardown, kinds: readonly string[]) {
  const rootCa = 'kube-root-ca.crt';
  const objects = new Map<string, Stored>([
    [
      `/api/v1/namespaces/payments/configmaps/${rootCa}`,
      { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: rootCa } },
    ],
  ]);
  const resources = new Map<string, { name: string; kind: string; namespaced: boolean; verbs: string[] }[]>();
  for (const [apiVersion = '', kind = ''] of [...kinds, 'v1 Secret'].map((one) => one.split(' '))) {
    const name = kind.toLowerCase().replace(/y$/, 'ie').replace(/(ss)$/, '$1e') + 's';
    const verbs = ['create', 'get', 'list', 'patch', 'update', 'delete'];
    resources.set(apiVersion, [...(resources.get(apiVersion) ?? []), { name, kind, namespaced: true, verbs }]);
  }
  let refused: string | null = null;
  const groups = [...resources.keys()].filter((version) => version !== 'v1');
  const groupList = groups.map((groupVersion) => {
    const [name = '', version = ''] = groupVersion.split('/');
    const versions = [{ groupVersion, version }];
    return { name, versions, preferredVersion: versions[0] };
  });

  /** The response of a discovery path; null for any other path. */
  const discovered = (path: string): object | null => {
    if (path === '/version') return { major: '1', minor: '27', gitVersion: 'v1.27.0' };
    if (path === '/api') return { kind: 'APIVersions', versions: ['v1'] };
    if (path === '/apis') return { kind: 'APIGroupList', apiVersion: 'v1', groups: groupList };
    const groupVersion = /^\/apis?\/([^/]+(?:\/[^/]+)?)$/.exec(path)?.[1] ?? '';
    const found = resources.get(groupVersion);
    return found === undefined ? null : { kind: 'APIResourceList', groupVersion, resources: found };
  };
  const respond = async (request: IncomingMessage): Promise<[status: number, body: object]> => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://kubernetes');
    const found = discovered(pathname) ?? objects.get(pathname);
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = (): Stored => JSON.parse(Buffer.concat(chunks).toString()) as Stored;
    if (request.method === 'POST' && refused !== null && pathname.endsWith(`/${refused}`)) {
      refused = null;
      const status = { kind: 'Status', apiVersion: 'v1', status: 'Failure', reason: 'Forbidden', code: 403 };
      return [403, { ...status, message: 'a policy forbids this object' }];
    }
    if (request.method === 'POST' || request.method === 'PUT') {
      const object = body();
      objects.set(request.method === 'POST' ? `${pathname}/${object.metadata.name}` : pathname, object);
      return [201, object];
    }
    if (found !== undefined) {
      if (request.method === 'DELETE') objects.delete(pathname);
      return [200, found];
    }
    if (!/\/[a-z]+s$/.test(pathname))
      return [404, { kind: 'Status', status: 'Failure', reason: 'NotFound', code: 404 }];
    const wanted = (searchParams.get('labelSelector') ?? '').split(',').filter((one) => one !== '');
    const items = [...objects].flatMap(([path, object]) => {
      const isWanted = wanted.every((one) => {
        const [label = '', value] = one.split('=');
        return object.metadata.labels?.[label] === value;
      });
      return path.startsWith(`${pathname}/`) && isWanted ? [object] : [];
    });
    return [200, { kind: 'SecretList', apiVersion: 'v1', metadata: {}, items }];
  };
  const url = await startServer(t, (request, response) => {
    void respond(request).then(([status, body]) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
  });
  const nameOf = (name: string): string => `/api/v1/namespaces/payments/secrets/${name}`;
  return {
    url,
    annotateSecret: (name: string, annotations: Record<string, string>): void => {
      const found = objects.get(nameOf(name));
      if (found !== undefined) objects.set(nameOf(name), { ...found, metadata: { ...found.metadata, annotations } });
    },
    /** Refuses the next new object of a resource, such as `poddisruptionbudgets`. */
    refuseNext: (resource: string): void => {
      refused = resource;
    },
    secret: (name: string): Stored | undefined => objects.get(nameOf(name)),
  };
}
