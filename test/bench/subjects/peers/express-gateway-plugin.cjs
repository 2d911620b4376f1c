// The key check as a policy of Express Gateway, which loads its plugins as CommonJS.
const { admit } = require('../key-check.mjs');

module.exports = {
  version: '1.2.0',
  policies: ['key-check'],
  schema: { $id: 'https://merchant.example/key-check.json', type: 'object' },
  init(context) {
    context.registerPolicy({
      name: 'key-check',
      schema: { $id: 'https://merchant.example/key-check-policy.json', type: 'object' },
      policy: () => (request, response, next) => {
        if (admit(request, response)) next();
      },
    });
  },
};
