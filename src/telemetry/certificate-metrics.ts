import { Gauge } from 'prom-client';
import type { Registry } from 'prom-client';

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
