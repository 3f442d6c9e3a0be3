/**
 * Submits a task and works on it, for tests of TLS and tokens, in tests/clients. Prints one line of
 * JSON: the result, or the error. The tokens of the two roles may differ.
 */
import { Client, RotaError, Worker, type WorkerOptions } from "../../src/index.js";

const token = process.env["SUBMIT_TOKEN"] ?? "";
const workerToken = process.env["WORK_TOKEN"];
const transport = (process.env["TRANSPORT"] ?? "auto") as NonNullable<WorkerOptions["transport"]>;

async function submitAndWork(): Promise<unknown> {
  const client = new Client({ token });
  const handle = await client.submit("double", { number: 21 });
  if (workerToken === undefined) {
    return handle.id;
  }
  const worker = new Worker({ token: workerToken, transport });
  worker.handle<{ number: number }, number>("double", ({ number }) => number * 2);
  const waiting = new AbortController();
  const ended = worker.run().finally(() => waiting.abort());
  const result = handle.result({ timeoutMs: 60_000, signal: waiting.signal });
  result.catch(() => undefined); // the error of a worker that ends first is the one to tell
  await Promise.race([result, ended]);
  worker.stop();
  await ended;
  return result;
}

try {
  console.log(JSON.stringify({ result: await submitAndWork() }));
} catch (error) {
  if (!(error instanceof RotaError)) {
    throw error;
  }
  const { code, status, message } = error;
  console.log(JSON.stringify({ code, status, message }));
}
