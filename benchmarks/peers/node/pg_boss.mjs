// pg-boss: `node pg_boss.mjs work`, `node pg_boss.mjs workKeyed` or `node pg_boss.mjs submit`.
//
// Its own `work` polls twice a second at most, and takes one batch each time. So jobs are fetched in
// a loop, which it offers as well: while one batch is being completed the next is fetched, and an
// empty queue is asked again after a millisecond.
//
// A queue of policy `singleton` has at most one active job for each `singletonKey`. A fetch that
// meets a key with an active job takes nothing, so there each batch is completed before the next.

import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { Caller, converse, folder, required, Tally, url } from "./measuring.mjs";

const PgBoss = required("pg-boss");
const NOOP = "noop";
const CALL = "call";
const KEYED = "keyed";
const BATCH = 500;
const POLL_MS = 1;

async function started() {
  const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false });
  boss.on("error", (error) => process.stderr.write(`${error.message}\n`));
  await boss.start();
  return boss;
}

async function loop(boss, queue, handle) {
  let completing = Promise.resolve();
  for (;;) {
    const jobs = await boss.fetch(queue, { batchSize: BATCH });
    if (jobs.length === 0) {
      await sleep(POLL_MS);
      continue;
    }
    handle(jobs);
    await completing;
    completing = boss.complete(queue, jobs.map((job) => job.id));
  }
}

async function work() {
  const boss = await started();
  const tally = new Tally();
  const caller = new Caller();
  process.on("SIGTERM", () => process.exit(0));
  await Promise.all([
    loop(boss, NOOP, (jobs) => tally.count(jobs.length)),
    loop(boss, CALL, (jobs) => jobs.forEach((job) => caller.call(job.data.submitted_ns))),
  ]);
}

async function workKeyed() {
  const boss = await started();
  const tally = new Tally(path.join(folder, "keyed"));
  process.on("SIGTERM", () => process.exit(0));
  for (;;) {
    const jobs = await boss.fetch(KEYED, { batchSize: BATCH });
    if (jobs.length === 0) {
      await sleep(POLL_MS);
      continue;
    }
    tally.count(jobs.length);
    await boss.complete(KEYED, jobs.map((job) => job.id));
  }
}

async function submit() {
  const boss = await started();
  await boss.createQueue(NOOP);
  await boss.createQueue(CALL);
  await boss.createQueue(KEYED, { name: KEYED, policy: "singleton" });
  let next = 0;
  const client = {
    submit: () => boss.send(NOOP, {}),
    submitMany: (size) => boss.insert(Array.from({ length: size }, () => ({ name: NOOP }))),
    submitKeyed: (size, keys) =>
      boss.insert(
        Array.from({ length: size }, () => ({
          name: KEYED,
          singletonKey: `key ${next++ % keys}`,
        })),
      ),
    call: (submittedNs) => boss.send(CALL, { submitted_ns: submittedNs }),
    close: () => boss.stop({ graceful: false }),
  };
  await converse(client, required("pg-boss/package.json").version);
}

await { work, workKeyed, submit }[process.argv[2]]();
