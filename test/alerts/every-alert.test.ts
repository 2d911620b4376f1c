import t from 'tap';
import { covered } from './covered.js';
import { rules } from './rules.js';

t.test('each alert of the chart is caused by one of the tests beside this one, and there are no others', (t) => {
  t.same(Object.values(covered).flat().toSorted(), rules.map(({ alert }) => alert).toSorted());
  t.end();
});
