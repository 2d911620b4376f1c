// Preloaded into each test process. The test runner would put hooks around the loading of modules there, to say which files a test
// covers; coverage is off. On Node 20 such hooks are a thread of their own that each import goes through: a third of the suite's time.
const module_ = require('node:module');
module_.register = undefined;
module_.registerHooks = () => undefined;

// The test runner also enables source maps. The builds have none, but Node would look for one in each module, which is a fifth of the
// CPU time of an import.
process.setSourceMapsEnabled(false);
process.setSourceMapsEnabled = () => undefined;

// This variable would load the test runner's instrumentation in each child process too. It takes most of the start time there, and a
// child can wait for its threads at exit.
delete process.env.NODE_OPTIONS;
