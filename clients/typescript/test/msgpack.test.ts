import assert from "node:assert/strict";
import { test } from "node:test";

import { decode, encode, MsgpackError, type Packed } from "../src/worker/msgpack.js";

test("every value that is written is read back", () => {
  const values: Packed[] = [
    null, true, false, 0, 1, 127, 128, 255, 256, 65_535, 65_536, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1,
    -1, -32, -33, -128, -129, -32_769, -(2 ** 31) - 1, -(2 ** 53) + 1, 0.5, -1e300,
    2n ** 53n, 2n ** 63n - 1n, -(2n ** 63n),
    "", "a", "é".repeat(15), "x".repeat(31), "x".repeat(32), "x".repeat(256), "x".repeat(70_000),
    [], Array.from({ length: 15 }, (_, n) => n), Array.from({ length: 16 }, (_, n) => n),
    Array.from({ length: 70_000 }, () => null),
    {}, Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`f${n}`, [n, { n }]])),
  ];
  for (const value of values) {
    assert.equal(JSON.stringify(plain(decode(encode(value)))), JSON.stringify(plain(value)));
  }
  for (const size of [0, 255, 256, 70_000]) {
    const bytes = Buffer.alloc(size, 7);
    assert(bytes.equals(decode(encode(bytes)) as Buffer));
  }
});

test("the number of a task keeps its 63 bits", () => {
  const number = 0x1234_5678_9abc_def1n;

  assert.equal(String(decode(encode([number]))), number.toString());
});

test("fields that are undefined are left out", () => {
  assert.deepEqual({ ...(decode(encode({ a: 1, b: undefined })) as object) }, { a: 1 });
});

test("a field cannot reach the prototype of objects", () => {
  const read = decode(encode(JSON.parse('{"__proto__": {"polluted": true}}') as Packed));

  assert.equal((read as Record<string, unknown>)["polluted"], undefined);
  assert.equal(({} as Record<string, unknown>)["polluted"], undefined);
});

test("what is cut off, too deep, unknown or too much is refused", () => {
  const whole = encode({ a: ["text", 1n << 60n, Buffer.alloc(300)] });
  for (let size = 0; size < whole.length; size += 1) {
    assert.throws(() => decode(whole.subarray(0, size)), MsgpackError);
  }
  assert.throws(() => decode(Buffer.concat([whole, Buffer.of(0)])), MsgpackError);
  assert.throws(() => decode(Buffer.alloc(1_000, 0x91)), MsgpackError);
  assert.throws(() => decode(Buffer.of(0xc7, 1, 1, 1)), MsgpackError);
  assert.throws(() => decode(Buffer.of(0xdd, 0xff, 0xff, 0xff, 0xff)), MsgpackError);
  assert.throws(() => decode(Buffer.of(0x81, 1, 1)), MsgpackError);
  assert.throws(() => encode(1n << 64n), MsgpackError);
});

function plain(value: Packed): unknown {
  if (typeof value === "bigint") {
    return `${value}n`;
  }
  if (Array.isArray(value)) {
    return value.map(plain);
  }
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, plain(one as Packed)]));
  }
  return value;
}
