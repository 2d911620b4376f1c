import { existsSync, readFileSync, renameSync } from 'node:fs';
import type { PinnedKey } from '../../src/audit/pinned-keys.js';
import { SignedRuns } from '../../src/audit/signed-runs.js';
import type { WitnessedList } from '../../src/audit/witnessed-list.js';
import type { Verdict } from '../../src/audit/chain-check.js';
import { NoteSigner } from '../../src/evidence/signed-note.js';
import type { LogSecret } from '../../src/telemetry/chain.js';
import type { ChainedLog } from '../../src/telemetry/chained-log.js';
import { CheckpointFile } from '../../src/telemetry/checkpoints/checkpoint-file.js';
import { CheckpointLog } from '../../src/telemetry/checkpoints/checkpoint-log.js';
import { openLog, until } from '../telemetry/open-log.js';
import { requestLine } from './sample-log.js';
import { verify } from './verify-log.js';

/** Overrides for the verification; the default is the log's own checkpoints and keys. */
interface Given {
  readonly notes?: readonly string[];
  readonly keys?: readonly PinnedKey[];
  readonly since?: number;
  readonly secrets?: readonly LogSecret[];
  readonly running?: boolean;
  readonly asOf?: number;
  /** The list of checkpoints that the registry keeps as the witness of the log, and the registry's public keys. */
  readonly witnessed?: WitnessedList;
  /** The file name of `notes` in findings; by default `checkpoints`. */
  readonly from?: string;
}

/** A log with signed checkpoints, and the signing keys. */
export class SignedLog {
  readonly instance: NoteSigner;
  readonly file: string;
  readonly checkpointFile: string;

  constructor(directory: string, name = 'access.log', instance = NoteSigner.inMemory('gw.example/a')) {
    this.instance = instance;
    this.file = `${directory}/${name}`;
    this.checkpointFile = `${directory}/checkpoints.jsonl`;
  }

  get keys(): PinnedKey[] {
    return [{ key: this.instance.key, from: -Infinity, to: Infinity }];
  }

  /** Simulates the start of a process that writes the log, and writes this many lines. */
  open(
    lines: number,
    everyMilliseconds = 1_000_000,
  ): { readonly log: ChainedLog; readonly checkpoints: CheckpointLog } {
    const checkpoints = new CheckpointLog({
      ...{ instance: this.instance, places: [new CheckpointFile(this.checkpointFile)], everyMilliseconds },
    });
    const log = openLog(this.file, { checkpoints });
    for (let count = 0; count < lines; count += 1) log.write(requestLine({ path: `/v1/payouts/${count}` }));
    return { log, checkpoints };
  }

  /** Simulates a whole process: opens the log, writes the lines and closes the log. */
  async run(lines: number): Promise<void> {
    await this.open(lines).log.close(30_000);
  }

  /** Renames the file and makes the process continue in a new file. */
  async rotate(log: ChainedLog, to: string): Promise<void> {
    renameSync(this.file, to);
    log.reopen();
    await until(() => existsSync(this.file) && readFileSync(this.file, 'utf8').includes('file-start'));
  }

  read(file = this.file): Buffer {
    return readFileSync(file);
  }

  /** The stored checkpoints. */
  get notes(): string[] {
    const lines = readFileSync(this.checkpointFile, 'utf8').trimEnd().split('\n');
    return lines.map((line) => (JSON.parse(line) as { note: string }).note);
  }

  /** Verifies files of the log with its own or with other checkpoints. */
  verify(files: readonly Buffer[], given: Given = {}): Verdict {
    const {
      notes = this.notes,
      keys = this.keys,
      since = -Infinity,
      secrets = [],
      running = false,
      asOf = -Infinity,
    } = given;
    const signed = new SignedRuns(keys, since, given.witnessed ?? null);
    notes.forEach((note, index) => {
      const bytes = Buffer.from(JSON.stringify({ note }));
      signed.take({ file: given.from ?? 'checkpoints', number: index + 1, bytes, ended: true });
    });
    signed.link();
    return verify(files, { secrets, signed, running, asOf });
  }
}
