import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import test from './limited.mjs';
import ts from 'typescript';
import { beside, scratch } from './support.mjs';

test('the packed package works for import and for require, without a build', (t) => {
  const place = scratch(t);
  const said = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', place], { cwd: beside('..'), encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const made = JSON.parse(said);
  // Newer versions of npm name the package.
  const [{ filename, files }] = Array.isArray(made) ? made : Object.values(made);
  const names = files.map(({ path }) => path);
  assert.ok(names.some((name) => /^lib\/pipework\.linux-.*\.node$/.test(name)), String(names));
  assert.ok(names.every((name) => /^(lib\/|package\.json$|README\.md$|LICENSE)/.test(name)), String(names));
  execFileSync('tar', ['-xzf', filename], { cwd: place });
  mkdirSync(`${place}/node_modules`);
  renameSync(`${place}/package`, `${place}/node_modules/pipework`);
  const body = `
    const server = new Server(Segment.anonymous());
    const serving = server.serve((request) => request.data);
    new Client(server.segment).call('whole').then((reply) => {
      console.log(String(reply), typeof pair, PeerDied.name);
      server.stop();
    });
  `;
  const names_of = 'Client, Segment, Server';
  writeFileSync(`${place}/a.mjs`, `import { PeerDied } from 'pipework'; import { ${names_of} } from 'pipework/reqrep'; import { pair } from 'pipework/atomic'; ${body}`);
  writeFileSync(`${place}/a.cjs`, `const { PeerDied } = require('pipework'); const { ${names_of} } = require('pipework/reqrep'); const { pair } = require('pipework/atomic'); ${body}`);
  for (const name of ['a.mjs', 'a.cjs']) {
    assert.equal(execFileSync(process.execPath, [name], { cwd: place, encoding: 'utf8' }), 'whole function PeerDied\n');
  }
  // The way of TypeScript's that knows no `exports`.
  writeFileSync(`${place}/a.ts`, `import { ${names_of} } from 'pipework/reqrep'; import { pair } from 'pipework/atomic'; [${names_of}, pair];`);
  const found = ts.getPreEmitDiagnostics(ts.createProgram([`${place}/a.ts`], {
    moduleResolution: ts.ModuleResolutionKind.Node10,
    module: ts.ModuleKind.CommonJS,
    target: ts.ScriptTarget.ES2022,
    noEmit: true,
    skipLibCheck: true,
    types: ['node'],
    typeRoots: [beside('../node_modules/@types')],
  }));
  assert.deepEqual(found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' ')), []);
});
