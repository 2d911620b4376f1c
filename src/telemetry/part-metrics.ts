import { Counter, Gauge, type Registry } from 'prom-client';

/** The list of Tor exits as the metrics see it. */
export interface TorExitFigures {
  readonly available: boolean;
  readonly digest: string | null;
  readonly size: number;
  /** null: there never was a list. */
  readonly ageSeconds: number | null;
  readonly sources: readonly {
    /** Configured, without what could be secret in it. */
    readonly source: string;
    readonly ageSeconds: number | null;
    readonly size: number;
    readonly leftOut: number;
    readonly refusals: Readonly<Record<string, number>>;
  }[];
}

/** Metrics of the list of Tor exits, taken when they are asked for. */
export function registerTorExitMetrics(register: Registry, figures: () => TorExitFigures): void {
  const gauge = <Label extends string>(
    name: string,
    help: string,
    labelNames: Label[],
    collect: (gauge: Gauge<Label>, figures: TorExitFigures) => void,
  ): void => {
    new Gauge({
      name,
      help,
      labelNames,
      aggregator: name === 'gateway_tor_list_available' ? 'min' : 'max', // the same list in each of several processes
      registers: [register],
      collect() {
        this.reset();
        collect(this, figures());
      },
    });
  };
  gauge('gateway_tor_list_available', '1 while there is a list of Tor exits that is young enough.', [], (it, list) => {
    it.set(list.available ? 1 : 0);
  });
  gauge('gateway_tor_list_entries', 'Addresses in the list of Tor exits in force.', [], (it, list) => {
    it.set(list.size);
  });
  gauge('gateway_tor_list_info', 'The SHA-256 of the list in force, as a label.', ['digest'], (it, list) => {
    if (list.digest !== null) it.set({ digest: list.digest }, 1);
  });
  gauge(
    'gateway_tor_list_age_seconds',
    'Age of the youngest list by its own date, or since its source was confirmed where it has none.',
    [],
    (it, list) => {
      if (list.ageSeconds === null) it.remove();
      else it.set(list.ageSeconds);
    },
  );
  gauge('gateway_tor_list_source_age_seconds', 'The same of the list of this source.', ['source'], (it, list) => {
    for (const { source, ageSeconds } of list.sources) if (ageSeconds !== null) it.set({ source }, ageSeconds);
  });
  gauge(
    'gateway_tor_list_source_entries',
    'Addresses in the last good list of this source.',
    ['source'],
    (it, list) => {
      for (const { source, size } of list.sources) it.set({ source }, size);
    },
  );
  gauge(
    'gateway_tor_list_left_out',
    'Reserved addresses left out of the list of this source.',
    ['source'],
    (it, list) => {
      for (const { source, leftOut } of list.sources) it.set({ source }, leftOut);
    },
  );
  new Counter({
    name: 'gateway_tor_list_refusals_total',
    help: 'Lists that this process could not have or refused, by source and reason.',
    labelNames: ['source', 'reason'],
    registers: [register],
    collect() {
      this.reset();
      for (const { source, refusals } of figures().sources) {
        for (const [reason, count] of Object.entries(refusals)) this.inc({ source, reason }, count);
      }
    },
  });
}

/** A certificate as the metrics see it: moments in milliseconds since 1970. */
export interface CertificateFigures {
  readonly file: string;
  readonly notBefore: number;
  readonly notAfter: number;
}

/** Metrics of the certificates that are in use whenever they are asked for. */
export function registerCertificateMetrics(register: Registry, current: () => Iterable<CertificateFigures>): void {
  const gauge = (name: string, help: string, momentOf: (certificate: CertificateFigures) => number): void => {
    new Gauge({
      name,
      help,
      labelNames: ['file'],
      aggregator: 'min', // of several processes that of the one whose certificate ends first
      registers: [register],
      collect() {
        this.reset();
        for (const certificate of current()) this.set({ file: certificate.file }, momentOf(certificate) / 1000);
      },
    });
  };
  gauge(
    'gateway_tls_certificate_not_before_seconds',
    'When the certificate in use from this file began to be valid, in seconds since 1970.',
    ({ notBefore }) => notBefore,
  );
  gauge(
    'gateway_tls_certificate_not_after_seconds',
    'When the certificate in use from this file ends, in seconds since 1970.',
    ({ notAfter }) => notAfter,
  );
}
