// Preloaded into each test process. The test runner would put hooks around the loading of modules there, to say which files a test
// covers; coverage is off. On Node 20 such hooks are a thread of their own that each import goes through: a third of the suite's time.
const module_ = require('node:module');
module_.register = undefined;
module_.registerHooks = () => undefined;
