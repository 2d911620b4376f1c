import Type from '../../typebox/typebox.js';
import { line, nullable, requiredFile, section } from './option.js';

const claim = line({ expects: 'the name of a claim', examples: ['groups'], description: 'Name of the claim.' });

/** The roles that claims can give: all except `services`, which is not for people. */
const signInRoles = ['owner', 'operator', 'support', 'auditor', 'treasurer', 'merchant-admin', 'merchant-viewer'];

/** Options of the OpenID provider at which administrators sign in. */
export const oidc = section(
  {
    issuer: Type.String({
      pattern: '^https?://[^?#@\\s\\\\\\u0000-\\u001f\\u007f]+$',
      maxLength: 500,
      expects: 'an https:// URL without a user, a query or a fragment',
      examples: ['https://login.example.com/realms/staff'],
      description:
        'The URL of the issuer, exactly as the provider publishes it. http is accepted only for loopback addresses.',
    }),
    clientId: line({
      expects: 'the id of the client',
      examples: ['merchant-gateway'],
      description:
        'Client id of the registry at the provider. The provider must allow this client the device grant and refresh tokens.',
    }),
    clientSecretFile: requiredFile(
      "File with the client secret. The secret also encrypts the provider's tokens in the database.",
      '/etc/gateway/oidc-secret',
    ),
    scope: line({
      default: 'openid profile offline_access',
      expects: 'scopes separated by spaces',
      description:
        'The requested scopes. offline_access requests a refresh token; without one, a sign-in with "merchant-gateway login" ends after 15 minutes.',
    }),
    roles: Type.Array(
      section(
        {
          claim,
          value: line({
            expects: 'a value of the claim',
            examples: ['payments-operators'],
            description:
              'The value that the claim must have. If the claim is a list, the list must contain this value.',
          }),
          roles: Type.Array(Type.Enum([...signInRoles], { examples: ['operator'] }), {
            ...{ maxItems: 7, expects: 'a list of roles', examples: [['operator']] },
            description: 'Roles granted to people whose claim has this value.',
          }),
        },
        { description: '' },
      ),
      {
        default: [],
        maxItems: 200,
        expects: 'a list of { claim, value, roles }',
        description:
          'Which claims give which roles. The registry reads the claims at each sign-in and refresh, and refuses a person without a role. Empty: only administrators whose issuer and subject the registry has stored can sign in, with their stored roles.',
      },
    ),
    merchant: nullable(section({ claim }, { description: '' }), {
      description:
        'The claim that contains the merchant id of a person who works for a merchant (a member). null: members cannot sign in at the provider, only with links.',
    }),
  },
  { description: '' },
);
