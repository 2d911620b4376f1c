import { existsSync } from 'node:fs';
import { type Administrator, administratorSchema, createdTokenSchema } from '../../registry/administrators/schema.js';
import Type from '../../typebox/typebox.js';
import type { AdminClient } from '../admin/admin-client.js';
import { type DemoTokenFiles, writeNewFile } from './data-directory.js';

/**
 * Creates the demo administrators and their token files, if they are missing. Four administrators show what their roles
 * allow: owner, support, treasurer, and admin of the demo merchant. The fifth administrator is a machine. The services
 * use its token to send events to the registry.
 */
export async function ensureDemoAdministrators(
  admin: AdminClient,
  merchantId: string,
  files: DemoTokenFiles,
): Promise<void> {
  const query = { per_page: '100' };
  const expects = Type.Array(administratorSchema);
  const { data: known } = await admin.ask({ method: 'GET', path: ['administrators'], query, expects });
  const wanted = [
    { body: { name: 'demo-owner', roles: ['owner'] }, file: files.owner },
    { body: { name: 'demo-support', roles: ['support'] }, file: files.support },
    { body: { name: 'demo-member', roles: ['merchant-admin'], merchantId }, file: files.member },
    { body: { name: 'demo-treasurer', roles: ['treasurer'] }, file: files.treasurer },
    { body: { name: 'demo-services', roles: ['services'], kind: 'machine' }, file: files.services },
  ];
  for (const { body, file } of wanted) {
    const { id } = known.find(({ name }) => name === body.name) ?? (await create(admin, body));
    if (!existsSync(file)) await createToken(admin, id, file);
  }
}

async function create(admin: AdminClient, body: object): Promise<Administrator> {
  const { data } = await admin.ask({ method: 'POST', path: ['administrators'], body, expects: administratorSchema });
  return data;
}

async function createToken(admin: AdminClient, administratorId: string, file: string): Promise<void> {
  const body = { name: 'dev', administratorId };
  const { data } = await admin.ask({ method: 'POST', path: ['tokens'], body, expects: createdTokenSchema });
  await writeNewFile(file, `${data.token}\n`);
}
