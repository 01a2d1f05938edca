import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import test from './limited.mjs';
import { Segment } from 'pipework/reqrep';
import { PYTHON, ready } from './peers.mjs';
import { beside, ended, folder, line, printed, program, run, until } from './support.mjs';

const example = (name) => beside(`../examples/${name}`);

test('a tool server whose library prints keeps its protocol', async (t) => {
  const child = spawn(process.execPath, [example('tool_server.mjs')], { stdio: 'pipe' });
  t.after(() => child.kill('SIGKILL'));
  child.stdin.end('{"id":1,"method":"add","params":[2,3]}\n{"id":2,"method":"chatty","params":["a"]}\n{"id":3,"method":"none"}\n');
  const [out, err] = await Promise.all([printed(child), printed({ stdout: child.stderr })]);
  assert.equal(out, '{"id":1,"result":5}\n{"id":2,"result":"A"}\n{"id":3,"error":"there is no tool none"}\n');
  assert.equal(err, 'debug: the library is at work\n');
  assert.equal(await ended(child), 0);
});

test('a web server shares one model process, which is written in Python', async (t) => {
  const path = `${folder(t)}/model`;
  const python = ready(t, PYTHON)?.[0];
  if (python === undefined) return;
  const model = () => run(t, python, [example('model.py'), path], { stdio: 'inherit' });
  const first = model();
  const web = spawn(process.execPath, [example('model_web.mjs'), path, '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => web.kill('SIGKILL'));
  const { port } = /port: (?<port>\d+)/.exec(await line(web)).groups;
  const ask = async (body) => {
    const response = await fetch(`http://127.0.0.1:${port}`, { method: 'POST', body });
    return `${response.status} ${await response.text()}`;
  };
  const answers = await Promise.all(['a', 'a b', 'a b c'].map(ask));
  assert.deepEqual(answers, ['200 1 words', '200 2 words', '200 3 words']);
  first.kill('SIGKILL');
  await ended(first);
  assert.match(await ask('x'), /^503 /);
  model();
  const segment = Segment.open(path);
  await until(() => segment.members().some(({ role, isAlive }) => role === 'server' && isAlive));
  assert.equal(await ask('it goes on'), '200 3 words');
});

const PAGES = ['../README.md', ...readdirSync(beside('../../docs/node')).map((name) => `../../docs/node/${name}`), '../../docs/start/node.md', '../../README.md'];

for (const page of PAGES) {
  test(`the code of ${page.replaceAll('../', '')} runs`, async (t) => {
    const blocks = [...readFileSync(beside(page), 'utf8').matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);
    if (page !== '../../README.md') assert.ok(blocks.length > 0);
    for (const code of blocks) {
      const child = program(t, code, { stdio: ['ignore', 'ignore', 'pipe'] });
      const said = await printed({ stdout: child.stderr });
      assert.equal(await ended(child), 0, `${said}\n${code}`);
    }
  });
}
