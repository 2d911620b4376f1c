#!/usr/bin/env node
// Before the version check, this file imports nothing and uses only old syntax. Otherwise an older Node would fail with
// a syntax error that does not explain the reason.
const oldest = { major: 20, minor: 19 };
const [major, minor] = process.versions.node.split('.').map(Number) as [number, number];
if (major < oldest.major || (major === oldest.major && minor < oldest.minor)) {
  process.stderr.write(
    `merchant-gateway requires Node.js ${oldest.major}.${oldest.minor} or newer, but ${process.execPath} has version ` +
      `${process.versions.node}: install a newer Node.js and use it to start merchant-gateway.\n`,
  );
  process.exit(1);
}
// Without a listener for SIGUSR1, Node opens its debugger. Any local user could then run code in this process and read
// its secrets.
process.on('SIGUSR1', () => undefined);
// By convention, SIGHUP and SIGUSR2 mean "reload files". Without listeners, they would end the process. A starting
// server reads all files anyway, so these listeners ignore the signals.
if (['gateway', 'registry', 'services'].includes(String(process.argv[2]))) {
  for (const signal of ['SIGHUP', 'SIGUSR2']) process.on(signal, () => undefined);
}
void import('./program.js');
