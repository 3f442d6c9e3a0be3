// What Node peers share: where their packages are, how a handler tells that it ran, and a
// conversation over standard input and output with the Python that measures them.

import dgram from "node:dgram";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import readline from "node:readline";

export const url = process.env.ROTA_BENCHMARK_POSTGRES;
export const folder = process.env.ROTA_BENCHMARK_FOLDER;
export const required = createRequire(path.join(process.env.ROTA_BENCHMARK_NODE, "here.js"));

export const nowNs = () => process.hrtime.bigint(); // CLOCK_MONOTONIC, as in Python

// The file of `witness.Tally`. Written once a turn of the event loop, not once a job: Node has no
// memory that is a file, and a system call for each job would be held against the peer.
export class Tally {
  #record = Buffer.alloc(24);
  #runs = 0n;
  #firstNs = 0n;
  #lastNs = 0n;
  #file = null;
  #folder;
  #isDue = false;

  constructor(where = folder) {
    this.#folder = where;
  }

  count(runs = 1) {
    this.#lastNs = nowNs();
    if (this.#runs === 0n) this.#firstNs = this.#lastNs;
    this.#runs += BigInt(runs);
    if (this.#isDue) return;
    this.#isDue = true;
    setImmediate(() => this.#write());
  }

  #write() {
    this.#isDue = false;
    this.#record.writeBigInt64LE(this.#runs, 0);
    this.#record.writeBigInt64LE(this.#firstNs, 8);
    this.#record.writeBigInt64LE(this.#lastNs, 16);
    if (this.#file === null) {
      const draft = path.join(this.#folder, `${process.pid}.draft`);
      fs.writeFileSync(draft, this.#record);
      const counted = path.join(this.#folder, `${process.pid}.tally`);
      fs.renameSync(draft, counted);
      this.#file = fs.openSync(counted, "r+");
      return;
    }
    fs.writeSync(this.#file, this.#record, 0, 24, 0);
  }
}

// The handler's end of `witness.Listener`.
export class Caller {
  #socket = dgram.createSocket("udp4");
  #port = 0;

  call(submittedNs) {
    const started = nowNs();
    this.#port ||= Number(fs.readFileSync(path.join(folder, "calls.port"), "utf8"));
    const record = Buffer.alloc(16);
    record.writeBigInt64LE(BigInt(submittedNs), 0);
    record.writeBigInt64LE(started, 8);
    this.#socket.send(record, this.#port, "127.0.0.1");
  }
}

// Answer each line with one: the client of a peer is `{ submit(), submitMany(n), call(ns) }`, and
// `submitKeyed(n, keys)` if it can limit how many tasks of a key run.
export async function converse(client, version) {
  say({ version });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    if (asked.do === "call") {
      const submittedNs = nowNs();
      await client.call(String(submittedNs));
      say({ submitted_ns: String(submittedNs) });
    } else if (asked.do === "submit_keyed") {
      say(await atOwnPace((size) => client.submitKeyed(size, asked.keys), asked));
    } else {
      const submit = asked.size === 1 ? () => client.submit() : (size) => client.submitMany(size);
      say(await atOwnPace(submit, asked));
    }
  }
  await client.close();
}

async function atOwnPace(submit, { size, tasks, limit_s: limitS }) {
  let submitted = 0;
  const start = performance.now();
  while (submitted < tasks && performance.now() - start < limitS * 1000) {
    const wanted = Math.min(size, tasks - submitted);
    await submit(wanted);
    submitted += wanted;
  }
  return { tasks: submitted, seconds: (performance.now() - start) / 1000 };
}

function say(value) {
  process.stdout.write(JSON.stringify(value) + "\n");
}
