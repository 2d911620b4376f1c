import { Counter, Gauge, type Registry } from 'prom-client';

/** The values for the metrics of the Tor exit list. */
export interface TorExitStats {
  readonly available: boolean;
  readonly digest: string | null;
  readonly size: number;
  /** The age of the list; null until the first list is loaded. */
  readonly ageSeconds: number | null;
  readonly sources: readonly {
    /** The configured source, without parts that could be secret. */
    readonly source: string;
    readonly ageSeconds: number | null;
    readonly size: number;
    readonly leftOut: number;
    readonly refusals: Readonly<Record<string, number>>;
  }[];
}

/** Registers the metrics of the Tor exit list. All values are read at each scrape. */
export function registerTorExitMetrics(register: Registry, stats: () => TorExitStats): void {
  const gauge = <Label extends string>(
    name: string,
    help: string,
    labelNames: Label[],
    collect: (gauge: Gauge<Label>, stats: TorExitStats) => void,
  ): void => {
    new Gauge({
      name,
      help,
      labelNames,
      // Combine by minimum or maximum, not by sum, because every process has the same list.
      aggregator: name === 'gateway_tor_list_available' ? 'min' : 'max',
      registers: [register],
      collect() {
        this.reset();
        collect(this, stats());
      },
    });
  };
  gauge('gateway_tor_list_available', '1 while a Tor exit list is loaded and not too old.', [], (it, list) => {
    it.set(list.available ? 1 : 0);
  });
  gauge('gateway_tor_list_entries', 'Addresses in the current Tor exit list.', [], (it, list) => {
    it.set(list.size);
  });
  gauge('gateway_tor_list_info', 'The SHA-256 of the current Tor exit list, as a label.', ['digest'], (it, list) => {
    if (list.digest !== null) it.set({ digest: list.digest }, 1);
  });
  gauge(
    'gateway_tor_list_age_seconds',
    'Seconds since the date in the newest Tor exit list; for a list without a date, since its source last confirmed the list.',
    [],
    (it, list) => {
      if (list.ageSeconds === null) it.remove();
      else it.set(list.ageSeconds);
    },
  );
  gauge(
    'gateway_tor_list_source_age_seconds',
    'Seconds since the date in the list of this source. For a list without a date: seconds since the source last sent it or reported it unchanged.',
    ['source'],
    (it, list) => {
      for (const { source, ageSeconds } of list.sources) if (ageSeconds !== null) it.set({ source }, ageSeconds);
    },
  );
  gauge(
    'gateway_tor_list_source_entries',
    'Addresses in the last valid list of this source.',
    ['source'],
    (it, list) => {
      for (const { source, size } of list.sources) it.set({ source }, size);
    },
  );
  gauge(
    'gateway_tor_list_left_out',
    'Addresses in reserved ranges that were omitted from the list of this source.',
    ['source'],
    (it, list) => {
      for (const { source, leftOut } of list.sources) it.set({ source }, leftOut);
    },
  );
  new Counter({
    name: 'gateway_tor_list_refusals_total',
    help: 'Tor exit lists that this process could not fetch, or rejected, by source and reason.',
    labelNames: ['source', 'reason'],
    registers: [register],
    collect() {
      this.reset();
      for (const { source, refusals } of stats().sources) {
        for (const [reason, count] of Object.entries(refusals)) this.inc({ source, reason }, count);
      }
    },
  });
}

/** The validity of a TLS certificate, in milliseconds since 1970. */
export interface CertificateValidity {
  readonly file: string;
  readonly notBefore: number;
  readonly notAfter: number;
}

/** Registers the metrics of the TLS certificates in use. All values are read at each scrape. */
export function registerCertificateMetrics(register: Registry, current: () => Iterable<CertificateValidity>): void {
  const gauge = (name: string, help: string, momentOf: (certificate: CertificateValidity) => number): void => {
    new Gauge({
      name,
      help,
      labelNames: ['file'],
      aggregator: 'min', // processes can have different certificates: report the earliest time
      registers: [register],
      collect() {
        this.reset();
        for (const certificate of current()) this.set({ file: certificate.file }, momentOf(certificate) / 1000);
      },
    });
  };
  gauge(
    'gateway_tls_certificate_not_before_seconds',
    'Beginning of validity of the certificate in use from this file, in seconds since 1970.',
    ({ notBefore }) => notBefore,
  );
  gauge(
    'gateway_tls_certificate_not_after_seconds',
    'Expiry of the certificate in use from this file, in seconds since 1970.',
    ({ notAfter }) => notAfter,
  );
}
