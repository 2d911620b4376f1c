import tseslint from 'typescript-eslint';

// V8 takes a function that is written where it is assigned to a property for a method, and puts each into the old generation. For
// every request one, they keep all that it refers to until the whole heap is collected. Named first, it stays young.
const namelessMethod = {
  selector:
    'AssignmentExpression[left.type="MemberExpression"] > :matches(ArrowFunctionExpression, FunctionExpression).right',
  message: 'Give the function a name in a statement of its own: V8 would put it into the old generation.',
};

/**
 * The places that use what neither Node nor a package documents, or put a method of their own in place of a documented one. At most
 * three: each may break with any new version of Node.
 */
export const exceptions = [
  // A service that does not want the rest of a body responds and closes. Node destroys a socket when a write fails, and the response,
  // a 413 say, lies unread in it.
  { files: ['src/edge/http1/**/*.ts'], names: ['_write', '_writev'] },
  // Node calls it behind the last response of a connection, and would reset that where a request body is still arriving: the client
  // would lose the response that says what is wrong.
  { files: ['src/edge/response/lingering-close.ts'], names: ['destroySoon'] },
  // Node hands over a CONNECT without a response, which has to get its socket.
  { files: ['src/edge/server/create-server.ts'], names: ['assignSocket'] },
];

const patched = ['destroy', 'destroySoon', 'emit', 'end', 'on', 'pause', 'push', 'read', 'resume', 'write'];
const undocumented = ['assignSocket', 'detachSocket', 'removeAllListeners'];

/** What only the exceptions may use. A class may override the methods that streams document for those who implement one. */
const privateInterfacesBut = (names) => {
  const without = names.map((name) => `[property.name!="${name}"]`).join('');
  const message = 'This is a private interface of Node or of a package. Use a documented one.';
  return [
    `MemberExpression[object.type!="Super"][property.type="Identifier"][property.name=/^_/]${without}`,
    `AssignmentExpression > MemberExpression.left[property.type="Identifier"][property.name=/^(?:${patched.join('|')})$/]${without}`,
    `CallExpression > MemberExpression.callee[property.name=/^(?:${undocumented.join('|')})$/]${without}`,
    'MemberExpression[object.name="require"][property.name="cache"]',
    'ImportDeclaration[source.value=/^[^.].*\\x2flib\\x2f/]',
    'CallExpression[callee.name="require"] > Literal[value=/^[^.].*\\x2flib\\x2f/]',
  ].map((selector) => ({ selector, message }));
};
const privateInterfaces = privateInterfacesBut([]);

export default tseslint.config(
  { ignores: ['dist', 'dist-test', '.tap', 'var', 'coverage'] },
  {
    files: ['**/*.{ts,tsx}'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      'no-console': 'error',
      eqeqeq: 'error',
    },
  },
  {
    files: ['src/**/*.ts'],
    rules: { 'no-restricted-syntax': ['error', namelessMethod, ...privateInterfaces] },
  },
  {
    // Handlers of events in a page are one call each.
    files: ['src/console/**/*.{ts,tsx}'],
    rules: { '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }] },
  },
  ...exceptions.map(({ files, names }) => ({
    files,
    rules: { 'no-restricted-syntax': ['error', namelessMethod, ...privateInterfacesBut(names)] },
  })),
  {
    // tap's `t.test` returns a promise that tap itself awaits.
    files: ['test/**/*.ts'],
    rules: { '@typescript-eslint/no-floating-promises': 'off' },
  },
);
