// Preloaded into each test process. No other user can read the files that tests write. Some are secrets, and the product refuses
// a secret that every user of the machine can read.
process.umask(0o077);
