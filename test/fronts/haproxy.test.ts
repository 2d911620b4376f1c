import { testFront } from './cases.js';
import { haproxy } from './fixture.js';
import { testHeaderValues } from './header-values.js';

testHeaderValues(haproxy);
testFront(haproxy);
