import t from 'tap';
import { render } from './render.js';

/** Values on top of the profile live-tls that the chart rejects: what they are, and the expected error. */
export type Refusals = readonly (readonly [what: string, sentence: RegExp, values: object])[];

/** Values on top of the profile live-tls that the chart accepts. */
export type Acceptances = readonly (readonly [what: string, values: object])[];

/** Tests that the chart rejects each of these values. Returns an array to which each test adds helm's error output. */
export function testRefusals(refusals: Refusals): string[] {
  const outputs: string[] = [];
  for (const [what, sentence, values] of refusals) {
    t.test(`rejected: ${what}`, (t) => {
      const { status, stderr } = render('live-tls', values);
      outputs.push(stderr);
      t.equal(status, 1);
      t.match(stderr.replaceAll(/\s+/g, ' '), sentence);
      t.end();
    });
  }
  return outputs;
}

/** Tests that the chart accepts each of these values. */
export function testAcceptances(acceptances: Acceptances): void {
  for (const [what, values] of acceptances) {
    t.test(`accepted: ${what}`, (t) => {
      const { status, stderr } = render('live-tls', values);
      t.equal(status, 0, stderr);
      t.end();
    });
  }
}
