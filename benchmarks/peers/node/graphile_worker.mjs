// Graphile Worker: `node graphile_worker.mjs work` or `node graphile_worker.mjs submit`.
//
// With a local queue of 500, as its page on performance advises for many small jobs.

import { Caller, converse, required, Tally, url } from "./measuring.mjs";

const { makeWorkerUtils, run, Logger } = required("graphile-worker");
const SIZE = 500;
const CONCURRENCY = 24;
const quiet = new Logger(() => (level, message) => {
  if (level === "error") process.stderr.write(`${message}\n`);
});

async function work() {
  const tally = new Tally();
  const caller = new Caller();
  const runner = await run({
    logger: quiet,
    preset: {
      worker: {
        connectionString: url,
        concurrentJobs: CONCURRENCY,
        localQueue: { size: SIZE },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    taskList: {
      noop: () => tally.count(),
      call: ({ submitted_ns: submittedNs }) => caller.call(submittedNs),
    },
  });
  await runner.promise;
}

async function submit() {
  const utils = await makeWorkerUtils({ connectionString: url, logger: quiet });
  await utils.migrate();
  const client = {
    submit: () => utils.addJob("noop", {}),
    submitMany: (size) =>
      utils.addJobs(Array.from({ length: size }, () => ({ identifier: "noop", payload: {} }))),
    call: (submittedNs) => utils.addJob("call", { submitted_ns: submittedNs }),
    close: () => utils.release(),
  };
  await converse(client, required("graphile-worker/package.json").version);
}

await { work, submit }[process.argv[2]]();
