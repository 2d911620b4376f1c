import { errors } from 'undici';
import t from 'tap';
import { connectionProblem } from '../../src/adapters/checkpoints/connection-problem.js';

t.test('a timeout has one name, whichever timer ends the request', (t) => {
  for (const error of [
    new DOMException('The operation was aborted due to timeout', 'TimeoutError'),
    new errors.ConnectTimeoutError(),
    new errors.HeadersTimeoutError(),
    new errors.BodyTimeoutError(),
  ])
    t.equal(connectionProblem(error), 'timeout', error.name);
  t.equal(connectionProblem(new errors.HeadersOverflowError()), 'UND_ERR_HEADERS_OVERFLOW', 'other codes are kept');
  t.equal(connectionProblem(Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })), 'ECONNREFUSED');
  t.end();
});
