import { existsSync, readFileSync, renameSync } from 'node:fs';
import { type PinnedKey, SignedRuns } from '../../src/audit/signed-runs.js';
import type { Verdict } from '../../src/audit/chain-check.js';
import { NoteSigner } from '../../src/evidence/signed-note.js';
import type { LogSecret } from '../../src/telemetry/chain.js';
import type { ChainedLog } from '../../src/telemetry/chained-log.js';
import { CheckpointLog } from '../../src/telemetry/checkpoint-log.js';
import { openLog, until } from '../telemetry/open-log.js';
import { requestLine } from './sample-log.js';
import { verify } from './verify-log.js';

/** What a log is verified with, where that is not its own. */
interface Given {
  readonly notes?: readonly string[];
  readonly keys?: readonly PinnedKey[];
  readonly since?: number;
  readonly secrets?: readonly LogSecret[];
}

/** A log whose checkpoints are signed, with what signs them. */
export class SignedLog {
  readonly instance = NoteSigner.inMemory('gw.example/a');
  readonly file: string;
  readonly checkpointFile: string;

  constructor(directory: string, name = 'access.log') {
    this.file = `${directory}/${name}`;
    this.checkpointFile = `${directory}/checkpoints.jsonl`;
  }

  get keys(): PinnedKey[] {
    return [{ key: this.instance.key, from: -Infinity, to: Infinity }];
  }

  /** Begins a process that writes the log, and writes so many lines. */
  open(lines: number): { readonly log: ChainedLog; readonly checkpoints: CheckpointLog } {
    const checkpoints = new CheckpointLog({
      ...{ instance: this.instance, file: this.checkpointFile, everyMilliseconds: 1_000_000 },
    });
    const log = openLog(this.file, { checkpoints });
    for (let count = 0; count < lines; count += 1) log.write(requestLine({ path: `/v1/payouts/${count}` }));
    return { log, checkpoints };
  }

  /** Runs a process from its start to its end. */
  async run(lines: number): Promise<void> {
    await this.open(lines).log.close(30_000);
  }

  /** Renames the file, and has the process go on in a new one. */
  async rotate(log: ChainedLog, to: string): Promise<void> {
    renameSync(this.file, to);
    log.reopen();
    await until(() => existsSync(this.file) && readFileSync(this.file, 'utf8').includes('file-start'));
  }

  read(file = this.file): Buffer {
    return readFileSync(file);
  }

  /** The checkpoints that were kept. */
  get notes(): string[] {
    const lines = readFileSync(this.checkpointFile, 'utf8').trimEnd().split('\n');
    return lines.map((line) => (JSON.parse(line) as { note: string }).note);
  }

  /** Verifies files of the log with its checkpoints, or with others. */
  verify(files: readonly Buffer[], given: Given = {}): Verdict {
    const { notes = this.notes, keys = this.keys, since = -Infinity, secrets = [] } = given;
    const signed = new SignedRuns(keys, since);
    notes.forEach((note, index) => {
      const bytes = Buffer.from(JSON.stringify({ note }));
      signed.take({ file: 'checkpoints', number: index + 1, bytes, ended: true });
    });
    signed.link();
    return verify(files, { secrets, signed });
  }
}
