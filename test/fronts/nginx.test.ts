import { testFront } from './cases.js';
import { nginx } from './fixture.js';
import { testHeaderValues } from './header-values.js';

testHeaderValues(nginx);
testFront(nginx);
