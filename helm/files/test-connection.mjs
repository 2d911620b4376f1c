// The script of `helm test`. It sends one request to each URL in TARGETS, prints the response, and exits with 1 if a
// status or message is not the expected one.
import http from 'node:http';
import https from 'node:https';

const timeout = 10_000;

/**
 * Sends a GET request. It does not verify the certificate, which is for the public host name: the URL has the name of a
 * Service.
 */
function ask(url) {
  const client = url.startsWith('https:') ? https : http;
  return new Promise((resolve, reject) => {
    const request = client.get(url, { rejectUnauthorized: false, timeout }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (chunk) => (body += chunk));
      response.on('end', () => resolve({ status: response.statusCode, body }));
      response.on('error', reject);
    });
    request.on('timeout', () => request.destroy(new Error('no answer in time')));
    request.on('error', reject);
  });
}

let failed = false;
for (const { url, status, message } of JSON.parse(process.env.TARGETS)) {
  const answer = await ask(url).catch((error) => ({ status: 0, body: error.message }));
  const isRight = answer.status === status && (message === undefined || JSON.parse(answer.body).message === message);
  console.log(`${isRight ? 'ok' : 'FAILED'} ${url}: ${answer.status} ${answer.body.slice(0, 200)}`);
  failed ||= !isRight;
}
process.exit(failed ? 1 : 0);
