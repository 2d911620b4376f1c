import t from 'tap';
import { gatewayErrors } from '../../src/policy/gateway-errors.js';
import { denials } from '../../src/policy/decision-table.js';
import { remedies, remedyOf } from '../../src/policy/remedies.js';

t.test('each code has a remedy, in the order of the rules and of the errors', (t) => {
  t.same(Object.keys(remedies), [...denials.map(({ code }) => code), ...Object.keys(gatewayErrors)]);
  t.end();
});

t.test('meaning and remedy are sentences without markup, and name who has to act', (t) => {
  for (const [code, { meaning, remedy, concerns }] of Object.entries(remedies)) {
    for (const text of [meaning, remedy]) {
      t.match(text, /^[A-Z][^`*<>|[\]]{10,160}\.$/, code);
      for (const sentence of text.split(/(?<=\.) /)) t.ok(sentence.split(' ').length <= 25, sentence);
    }
    // A remedy has a part `Operators: ` only if it also concerns merchants. If it concerns merchants alone, it does not
    // need `Merchants: `.
    if (remedy.includes('Operators: ')) t.equal(concerns, 'both', code);
    if (remedy.includes('Merchants: ')) t.not(concerns, 'merchant', code);
  }
  t.end();
});

t.test('the remedies of codes with several causes name each cause', (t) => {
  t.match(remedies.overloaded, { meaning: /memory for incomplete request bodies/, concerns: 'both' });
  t.match(remedies.invalid_path, { meaning: /invalid characters/, remedy: /Percent-encode/ });
  t.end();
});

t.test('an unknown code has no remedy, nor has the name of a property of each object', (t) => {
  t.equal(remedyOf('key_required'), remedies.key_required);
  for (const code of ['accepted', 'of_a_later_release', '', 'constructor', '__proto__'])
    t.equal(remedyOf(code), null, code);
  t.end();
});
