import Type from '../../typebox/typebox.js';
import { address, nullable, optionalFile, section } from './option.js';

/** Options of the web console of the registry. */
export const console = section(
  {
    listen: section(
      {
        ...address('127.0.0.1', 7443),
        certFile: optionalFile(
          'PEM file with the certificate, followed by its intermediates. Required unless host is a loopback address ' +
            'or registry.behindProxy is set. Changed files apply within 10 seconds. null: plain HTTP.',
          '/etc/gateway/console.pem',
        ),
        keyFile: optionalFile("PEM file with the certificate's private key.", '/etc/gateway/console-key.pem'),
      },
      { description: 'The listener of the console.' },
    ),
    origin: nullable(
      Type.String({
        pattern: '^https?://[A-Za-z0-9_.\\[\\]:-]+$',
        maxLength: 300,
        expects: 'an https:// URL without a path',
        examples: ['https://console.example.com:7443'],
      }),
      {
        description:
          'The origin by which browsers address the console: requests for another host and changes from another ' +
          'origin are rejected. http only on loopback. null: the address of the listener, only on loopback.',
      },
    ),
  },
  { description: 'The web console.' },
);
