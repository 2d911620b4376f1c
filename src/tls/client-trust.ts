import { X509Certificate } from 'node:crypto';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import { readAuthority } from './tls-material.js';

/** TLS options with which a client verifies a server, in place of the CAs that the system trusts. */
export interface ClientTrust {
  readonly ca: Buffer;
  /** Trusts an intermediate or server certificate in `ca` even if the CA that signed it is not in `ca`. */
  readonly allowPartialTrustChain: true;
  readonly checkServerIdentity: (host: string, peer: PeerCertificate) => Error | undefined;
}

/**
 * Trusts only the CAs in a PEM file. The server's certificate must also be valid for the host to which the client
 * connects.
 * @throws OperatorError if the file cannot be read or has no certificate
 */
export async function trustAuthorities(file: string): Promise<ClientTrust> {
  return { ca: await readAuthority(file), allowPartialTrustChain: true, checkServerIdentity };
}

/**
 * Trusts a server under any host name if it presents the first certificate in a PEM file. A command calls this function
 * for a server on the same machine. The command and the server read the same file, so the certificate itself identifies
 * the server. A server with another certificate is verified as usual: against the CAs in the file and the host name.
 * @throws OperatorError if the file cannot be read or has no certificate
 */
export async function trustCertificate(file: string): Promise<ClientTrust> {
  const ca = await readAuthority(file);
  const { raw } = new X509Certificate(ca); // the first certificate of the file
  return {
    ca,
    allowPartialTrustChain: true,
    checkServerIdentity: (host, peer) => (raw.equals(peer.raw) ? undefined : checkServerIdentity(host, peer)),
  };
}
