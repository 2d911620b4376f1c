// Preloaded into each test process: what tests write, secrets among it, nobody else can read. The product refuses a secret that
// every user of the machine can read.
process.umask(0o077);
