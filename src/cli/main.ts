#!/usr/bin/env node
// Nothing is imported before this, and nothing newer is written in this file: an older Node fails at the first word that it
// does not know, and says nothing of the reason.
const oldest = { major: 20, minor: 19 };
const [major, minor] = process.versions.node.split('.').map(Number) as [number, number];
if (major < oldest.major || (major === oldest.major && minor < oldest.minor)) {
  process.stderr.write(
    `merchant-gateway needs Node.js ${oldest.major}.${oldest.minor} or newer, and ${process.execPath} is ` +
      `${process.versions.node}: install a newer one and start it with that.\n`,
  );
  process.exit(1);
}
// Without a listener Node opens its debugger, through which any user of this machine could run code here, beside the secrets.
process.on('SIGUSR1', () => undefined);
// "Look at your files again", which a start does anyhow: nobody listens yet, and without a listener they end the process.
if (['gateway', 'registry', 'services'].includes(String(process.argv[2]))) {
  for (const signal of ['SIGHUP', 'SIGUSR2']) process.on(signal, () => undefined);
}
void import('./program.js');
