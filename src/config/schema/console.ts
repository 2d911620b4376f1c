import Type from '../../typebox/typebox.js';
import { address, nullable, optionalFile, section } from './option.js';

function apiUrl(environment: string, example: string) {
  return nullable(
    Type.String({
      pattern: '^https://[^?#@\\s\\\\"\'$`\\u0000-\\u001f\\u007f]+$',
      maxLength: 300,
      expects: 'an https:// URL without a query',
      examples: [example],
    }),
    {
      description: `URL of the merchant API in the ${environment} environment, with its base path. null: the console shows no URL.`,
    },
  );
}

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
          'Scheme, host and port under which browsers open the console. Requests for another host, and changes from another origin, are rejected. http is accepted only for a loopback host. null: the address of the listener, which must be loopback.',
      },
    ),
    merchantApi: section(
      {
        liveUrl: apiUrl('live', 'https://api.example.com/v1'),
        testUrl: apiUrl('test', 'https://sandbox.example.com/v1'),
        caFile: nullable(Type.String({ maxLength: 4096, expects: 'a path', examples: ['/etc/ssl/private-ca.pem'] }), {
          description:
            "Path, on a merchant's machine, of the PEM file of the CA that issued the gateway's certificate. The example commands pass this path to curl --cacert. null: a public CA issued the certificate.",
        }),
      },
      { description: 'The addresses of the gateway that the console page "Try it" shows to merchants.' },
    ),
    services: nullable(
      section(
        {
          url: Type.String({
            pattern: '^https?://[^?#@\\s\\\\\\u0000-\\u001f\\u007f]+$',
            maxLength: 4096,
            description: "Address of the operators' API of the services. https, except for a loopback address.",
            expects: 'an http:// or https:// URL without a user or a query',
            examples: ['https://services.example.com:7081'],
          }),
          caFile: optionalFile(
            'PEM file of the CAs of an https address. null: the CAs that Node includes, and those in the file of NODE_EXTRA_CA_CERTS.',
          ),
        },
        { description: '' },
      ),
      {
        description:
          "The services whose wallets the console shows and funds. The registry forwards the console's requests to their operators' API. Requires " +
          'registry.servicesToken. null: the console has no wallets.',
      },
    ),
  },
  { description: 'The web console.' },
);
