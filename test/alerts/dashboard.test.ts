import t from 'tap';
import { dashboard } from './dashboard.js';

t.test('panels do not overlap and are unique', (t) => {
  const ids = dashboard.panels.map(({ id }) => id);
  t.equal(new Set(ids).size, ids.length);
  const taken = new Map<string, string>();
  for (const { title, gridPos } of dashboard.panels) {
    t.ok(gridPos.x + gridPos.w <= 24, title);
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
        if (taken.has(`${x} ${y}`)) t.fail(`${title} overlaps ${taken.get(`${x} ${y}`) ?? ''}`);
        taken.set(`${x} ${y}`, title);
      }
    }
  }
  t.end();
});
