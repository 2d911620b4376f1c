import t from 'tap';
import { covered } from './covered.js';
import { rules } from './rules.js';

t.test('the tests in this directory cause each alert of the chart, and name no others', (t) => {
  t.same(Object.values(covered).flat().toSorted(), rules.map(({ alert }) => alert).toSorted());
  t.end();
});
