import t from 'tap';
import { laterGeneration } from '../../src/registry/projection/history.js';

const early = 'r_01J9ZK3W8Q4T6Y2N5R7B1C0DEF';
const late = 'r_01JZZZZZZZ4T6Y2N5R7B1C0DEF';

t.test('a new generation sorts after all known generations, even after the clock was set back', (t) => {
  t.equal(laterGeneration(late, [early, null, undefined]), late);
  t.equal(laterGeneration(early, []), early);
  const made = laterGeneration(early, [late]);
  t.ok(made > late, 'the new generation is later although the clock was set back');
  t.match(made, /^r_01K0000000/, 'the time is one millisecond later');
  t.ok(made.endsWith(early.slice(-16)), 'the random part is new');
  t.ok(laterGeneration(early, [made, late]) > made);
  t.equal(laterGeneration(early, ['zzz']), early, 'an id of another form is ignored');
  const last = 'r_7ZZZZZZZZZ4T6Y2N5R7B1C0DEF';
  t.equal(laterGeneration(early, [last]), early, 'the maximum time cannot be exceeded');
  t.end();
});
