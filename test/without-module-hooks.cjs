// Preloaded into each test process. The test runner would hook the loading of modules there, to report which files a test covers. But
// coverage is off, and on Node 20 each import would go through the thread of these hooks, which costs a third of the suite's time.
const module_ = require('node:module');
module_.register = undefined;
module_.registerHooks = () => undefined;

// The test runner also enables source maps. The builds have none, but Node would look for one in each module, which is a fifth of the
// CPU time of an import.
process.setSourceMapsEnabled(false);
process.setSourceMapsEnabled = () => undefined;

// This variable would load the test runner's instrumentation in each child process too. There it takes most of the start time, and at
// its exit a child can wait for the instrumentation's threads.
delete process.env.NODE_OPTIONS;
