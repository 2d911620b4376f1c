import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { readOptions } from './compare/options.js';
import { writePage } from './compare/page.js';
import { tables, type Results } from './compare/report.js';
import { run } from './compare/run.js';

// Compares the CPU time per request of this gateway with that of other gateways and proxies. Each program runs in its
// own processes. In each round, the programs are measured one after another.

const options = readOptions(process.argv.slice(2));
const { fromFile, jsonFile } = options;
const results = fromFile === null ? await run(options) : (JSON.parse(readFileSync(fromFile, 'utf8')) as Results);
if (fromFile === null) {
  mkdirSync(path.dirname(jsonFile), { recursive: true });
  writeFileSync(jsonFile, `${JSON.stringify(results, null, 1)}\n`);
}
if (options.docs) writePage(results);
process.stdout.write(`${tables(results)}\n`);
