import t from 'tap';
import { laterGeneration } from '../../src/registry/projection/history.js';

const early = 'r_01J9ZK3W8Q4T6Y2N5R7B1C0DEF';
const late = 'r_01JZZZZZZZ4T6Y2N5R7B1C0DEF';

t.test('a new generation sorts behind those that are known, whatever the clock says', (t) => {
  t.equal(laterGeneration(late, [early, null, undefined]), late);
  t.equal(laterGeneration(early, []), early);
  const made = laterGeneration(early, [late]);
  t.ok(made > late, 'the clock was set back');
  t.match(made, /^r_01K0000000/, 'by a millisecond');
  t.ok(made.endsWith(early.slice(-16)), 'and is one that nobody had');
  t.ok(laterGeneration(early, [made, late]) > made);
  t.equal(laterGeneration(early, ['zzz']), early, 'one of another form says nothing about time');
  const last = 'r_7ZZZZZZZZZ4T6Y2N5R7B1C0DEF';
  t.equal(laterGeneration(early, [last]), early, 'nothing is later than that');
  t.end();
});
