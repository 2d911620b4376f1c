import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist', 'dist-test', '.tap', 'var', 'coverage'] },
  {
    files: ['**/*.ts'],
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
    // V8 takes a function that is written where it is assigned to a property for a method, and puts each into the old generation. For
    // every request one, they keep all that it refers to until the whole heap is collected. Named first, it stays young.
    files: ['src/**/*.ts'],
    rules: {
      'no-restricted-syntax': [
        'error',
        {
          selector:
            'AssignmentExpression[left.type="MemberExpression"] > :matches(ArrowFunctionExpression, FunctionExpression).right',
          message: 'Give the function a name in a statement of its own: V8 would put it into the old generation.',
        },
      ],
    },
  },
  {
    // tap's `t.test` returns a promise that tap itself awaits.
    files: ['test/**/*.ts'],
    rules: { '@typescript-eslint/no-floating-promises': 'off' },
  },
);
