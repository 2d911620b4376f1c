// Preloaded into each test process. The test runner uses async hooks to find the test in which an uncaught error was thrown. The hooks
// run for each promise, and cost a fifth of the CPU time of a registry test. Without the hooks, such an error still fails its test file.
const hooks = require('node:async_hooks');
const { syncBuiltinESMExports } = require('node:module');

const noHook = {
  enable: () => noHook,
  disable: () => noHook,
};
hooks.createHook = () => noHook;
syncBuiltinESMExports();
