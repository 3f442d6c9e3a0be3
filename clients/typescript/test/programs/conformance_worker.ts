/**
 * The TypeScript worker that is held against the transcript of the worker protocol, in
 * tests/clients/transcripts. tests/clients/conformance_worker.py is the same worker in Python.
 */
import { Client, Discard, Retry, Snooze, Worker } from "../../src/index.js";

const HOUR_MS = 3_600_000;
const gates = new Client({ url: process.env["GATE_URL"] ?? "" });

const worker = new Worker({
  concurrency: 1,
  workerId: "conformance",
  queues: ["conformance"],
  heartbeatIntervalMs: 60_000,
  transport: "websocket",
});

worker
  .handle<{ text: string }, { text: string }>("echo", ({ text }) => ({ text }))
  .handle<{ gate: string }, void>("gated", async ({ gate }, { progress }) => {
    progress(0.5);
    await gates.task(gate).wait({ timeoutMs: 60_000 });
  })
  .handle("endless", (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", resolve)))
  .handle("nap", () => {
    throw new Snooze(HOUR_MS);
  })
  .handle("again", () => {
    throw new Retry("busy", { inMs: HOUR_MS });
  })
  .handle("pointless", () => {
    throw new Discard("no such order");
  });

await worker.run();
