// The types are those of the binary: every name that they declare is there, and no other.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import test from './limited.mjs';
import ts from 'typescript';
import { beside } from './support.mjs';

const require = createRequire(import.meta.url);
const FILES = ['index', 'reqrep', 'atomic'];
const program = ts.createProgram(FILES.map((name) => beside(`../lib/${name}.d.ts`)), {
  module: ts.ModuleKind.Node16,
  target: ts.ScriptTarget.ES2022,
  lib: ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts'],
  types: ['node'],
});
const checker = program.getTypeChecker();

/** The exports of a file that exist when it runs. */
function declared(name) {
  const file = program.getSourceFile(beside(`../lib/${name}.d.ts`));
  return checker.getExportsOfModule(checker.getSymbolAtLocation(file)).map((symbol) => {
    const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    return [symbol.name, target];
  }).filter(([, { flags }]) => flags & ts.SymbolFlags.Value);
}

const isHidden = (name) => name === 'constructor' || name === 'prototype' || name.startsWith('_');

/** The names of the members of a class, static ones first with a dot. */
function membersDeclared(symbol) {
  const names = [];
  for (const declaration of symbol.declarations) {
    for (const member of declaration.members ?? []) {
      if (member.name === undefined) continue;
      const isStatic = member.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.StaticKeyword);
      names.push((isStatic ? '.' : '') + member.name.getText());
    }
  }
  return new Set(names.filter((name) => !isHidden(name)));
}

/** Symbols of this package and of `util.inspect` are for its own use. */
const SYMBOLS = ['asyncIterator', 'dispose', 'asyncDispose'];
const isPublic = (key) => typeof key === 'string' || SYMBOLS.some((name) => key === Symbol[name]);
const nameOf = (key) => (typeof key === 'string' ? key : `[Symbol.${SYMBOLS.find((name) => key === Symbol[name])}]`);

function membersFound(Class) {
  const own = (object, before) => Reflect.ownKeys(object).filter(isPublic).map((key) => before + nameOf(key));
  const statics = own(Class, '.').filter((name) => !['.length', '.name', '.prototype'].includes(name));
  return new Set([...own(Class.prototype, ''), ...statics].filter((name) => !isHidden(name)));
}

/** Fields, which the prototype does not have. */
const FIELDS = {
  PipeworkError: ['code', 'op', 'errno', 'path'],
  RemoteError: ['reason'],
  TornMessage: ['torn'],
  Message: ['data', 'writer', 'parts', 'compressed'],
  Burst: ['data', 'compressed'],
  Line: ['data'],
  Torn: ['writer', 'parts', 'byteLength', 'reason', 'limit'],
};
/** `name` is declared by `Error`. */
const INHERITED = { PipeworkError: ['name'] };

for (const file of FILES) {
  test(`the types of ${file} declare what it exports, and no more`, () => {
    const exported = require(file === 'index' ? 'pipework' : `pipework/${file}`);
    const names = declared(file);
    assert.deepEqual(names.map(([name]) => name).toSorted(), Object.keys(exported).toSorted());
    for (const [name, symbol] of names) {
      if (!(symbol.flags & ts.SymbolFlags.Class)) {
        assert.equal(typeof exported[name], symbol.flags & ts.SymbolFlags.Function ? 'function' : 'object', name);
        continue;
      }
      const found = membersFound(exported[name]);
      for (const field of FIELDS[name] ?? []) found.add(field);
      for (const field of INHERITED[name] ?? []) found.delete(field);
      assert.deepEqual([...found].toSorted(), [...membersDeclared(symbol)].toSorted(), name);
    }
  });

  test(`${file} exports the same for import and for require`, async () => {
    const name = file === 'index' ? 'pipework' : `pipework/${file}`;
    const [imported, required] = [await import(name), require(name)];
    assert.deepEqual(Object.keys(imported).toSorted(), Object.keys(required).toSorted());
    for (const each of Object.keys(required)) assert.equal(imported[each], required[each], each);
  });
}

test('the declarations have no errors of their own', () => {
  const found = ts.getPreEmitDiagnostics(program).map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'));
  assert.deepEqual(found, []);
});
