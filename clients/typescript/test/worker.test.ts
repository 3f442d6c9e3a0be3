import assert from "node:assert/strict";
import { test } from "node:test";

import {
  AttemptStopped,
  Client,
  defineTask,
  Discard,
  type LogFields,
  type Logger,
  Retry,
  Snooze,
  TaskFailed,
  Worker,
  type WorkerOptions,
} from "../src/index.js";
import { newClient, RawWorker, Relay, unique, URL_UNDER_TEST } from "./support.js";
import { TcpRelay } from "./tcp_relay.js";

const LIMIT = { timeoutMs: 20_000 };

/** Collects the events of a worker; `seen` resolves when one has been logged. */
class EventLog implements Logger {
  readonly events: { event: string; fields: LogFields }[] = [];
  private waiting: { event: string; times: number; resolve: (fields: LogFields) => void }[] = [];

  debug = (event: string, fields: LogFields): void => this.note(event, fields);
  info = this.debug;
  warn = this.debug;
  error = this.debug;

  seen(event: string, times = 1): Promise<LogFields> {
    return new Promise((resolve) => {
      this.waiting.push({ event, times, resolve });
      this.check();
    });
  }

  private note(event: string, fields: LogFields): void {
    this.events.push({ event, fields });
    this.check();
  }

  private check(): void {
    this.waiting = this.waiting.filter(({ event, times, resolve }) => {
      const found = this.events.filter((one) => one.event === event)[times - 1];
      if (found !== undefined) {
        resolve(found.fields);
      }
      return found === undefined;
    });
  }
}

/** A promise with its parts: what handlers and tests tell each other. */
function gate<Value = void>(): { promise: Promise<Value>; open: (value: Value) => void } {
  let open: (value: Value) => void = () => undefined;
  const promise = new Promise<Value>((resolve) => {
    open = resolve;
  });
  return { promise, open };
}

/** A worker on a queue of its own, running until the test is over. */
async function withWorker(
  options: WorkerOptions,
  prepare: (worker: Worker) => void,
  check: (given: { client: Client; queue: string; log: EventLog; worker: Worker }) => Promise<void>,
): Promise<void> {
  const queue = unique("wq");
  const log = new EventLog();
  const worker = new Worker({
    url: URL_UNDER_TEST,
    queues: [queue],
    logger: log,
    drainMs: 5_000,
    ...options,
  });
  prepare(worker);
  const running = worker.run({ handleSignals: false });
  try {
    await Promise.race([check({ client: newClient(), queue, log, worker }), failing(running)]);
  } finally {
    worker.stop();
    await running;
  }
}

/** Rejects if a worker ends by an error; otherwise never settles. */
async function failing(running: Promise<unknown>): Promise<never> {
  await running;
  return new Promise(() => undefined);
}

const add = defineTask<{ a: number; b: number }, number>("add");

for (const transport of ["websocket", "http"] as const) {
  test(`tasks are run and give their results over ${transport}`, async () => {
    await withWorker(
      { transport, concurrency: 4 },
      (worker) => worker.handle(add, ({ a, b }) => a + b),
      async ({ client, queue }) => {
        const payloads = Array.from({ length: 30 }, (_, number) => ({ a: number, b: 1 }));
        const handles = await client.submitMany(add, payloads, { queue });
        const results = await Promise.all(handles.map((one) => one.result(LIMIT)));

        assert.deepEqual(
          results,
          payloads.map(({ a }) => a + 1),
        );
      },
    );
  });

  test(`no more tasks than slots run at once over ${transport}`, async () => {
    let running = 0;
    let most = 0;
    const full = gate();
    await withWorker(
      { transport, concurrency: 3 },
      (worker) =>
        worker.handle("busy", async () => {
          running += 1;
          most = Math.max(most, running);
          if (running === 3) {
            full.open();
          }
          await full.promise;
          await new Promise(setImmediate);
          running -= 1;
        }),
      async ({ client, queue }) => {
        const handles = await client.submitMany("busy", Array(12).fill(null), { queue });
        await Promise.all(handles.map((one) => one.result(LIMIT)));

        assert.equal(most, 3);
      },
    );
  });

  test(`a cancelled task aborts the signal of its handler over ${transport}`, async () => {
    const begun = gate();
    const stopped = gate<unknown>();
    await withWorker(
      { transport, concurrency: 1, heartbeatIntervalMs: 200 },
      (worker) =>
        worker
          .handle("endless", (_, { signal }) => {
            begun.open();
            return new Promise((_resolve, reject) => {
              signal.addEventListener("abort", () => {
                stopped.open(signal.reason);
                reject(signal.reason);
              });
            });
          })
          .handle("next", () => "free again"),
      async ({ client, queue }) => {
        const handle = await client.submit("endless", null, { queue });
        await begun.promise;
        await handle.cancel();

        const reason = await stopped.promise;
        assert(reason instanceof AttemptStopped);
        assert.equal(reason.why, "cancelled");
        assert.equal((await handle.get()).state, "cancelled");
        const next = await client.submit("next", null, { queue });
        assert.equal(await next.result(LIMIT), "free again");
      },
    );
  });

  test(`progress and partial results are shown with the task over ${transport}`, async () => {
    const shown = gate();
    await withWorker(
      { transport },
      (worker) =>
        worker.handle("slow", async (_, context) => {
          context.progress(0.25);
          context.progress(0.5);
          context.partial({ rows: 3 });
          await shown.promise;
        }),
      async ({ client, queue }) => {
        const handle = await client.submit("slow", null, { queue });
        let task = await handle.get();
        while (task.progress !== 0.5 || task.partial == null) {
          await new Promise(setImmediate);
          task = await handle.get();
        }
        shown.open();

        assert.deepEqual([task.progress, task.partial], [0.5, { rows: 3 }]);
        await handle.result(LIMIT);
      },
    );
  });
}

test("a handler may snooze, ask for a retry, fail and discard", async () => {
  const attempts: string[] = [];
  await withWorker(
    { concurrency: 1 },
    (worker) =>
      worker.handle<string, string>("moody", (kind, { attempt, fence }) => {
        attempts.push(`${kind} ${attempt}`);
        if (fence > 1 && kind !== "fail") {
          return "at last";
        }
        switch (kind) {
          case "snooze":
            throw new Snooze(1);
          case "retry":
            throw new Retry("busy", { inMs: 1 });
          case "discard":
            throw new Discard("pointless", { cause: new TypeError("no such file") });
          default:
            throw new RangeError("out of range");
        }
      }),
    async ({ client, queue }) => {
      const submit = (kind: string): Promise<unknown> =>
        client
          .submit<string, string>("moody", kind, { queue, max_attempts: kind === "fail" ? 1 : 3 })
          .then((handle) => handle.result(LIMIT));

      assert.equal(await submit("snooze"), "at last");
      assert.equal(await submit("retry"), "at last");
      await assert.rejects(submit("discard"), (error) => {
        assert(error instanceof TaskFailed);
        assert.deepEqual([error.error.type, error.error.message], ["TypeError", "no such file"]);
        return true;
      });
      await assert.rejects(submit("fail"), (error) => {
        assert(error instanceof TaskFailed);
        assert.equal(error.error.type, "RangeError");
        const { traceback } = error.error.details as { traceback: string };
        assert.match(traceback, /worker\.test/);
        return true;
      });
      // A snooze does not use up an attempt, a retry does.
      assert.deepEqual(attempts, [
        "snooze 1", "snooze 1", "retry 1", "retry 2", "discard 1", "fail 1",
      ]);
    },
  );
});

test("a result that JSON cannot write fails the task for good", async () => {
  await withWorker(
    {},
    (worker) => worker.handle("big", () => 10n),
    async ({ client, queue }) => {
      const handle = await client.submit("big", null, { queue });

      await assert.rejects(handle.result(LIMIT), (error) => {
        assert(error instanceof TaskFailed);
        assert.equal(error.error.type, "unreadable_result");
        return true;
      });
    },
  );
});

test("a result too large for a frame is reported by a call", async () => {
  await withWorker(
    {},
    (worker) => worker.handle("large", () => "x".repeat(1024 * 1024)),
    async ({ client, queue }) => {
      const handle = await client.submit<null, string>("large", null, { queue });

      assert.equal((await handle.result(LIMIT)).length, 1024 * 1024);
    },
  );
});

test("a handler that runs past its time is aborted, and the task fails with timeout", async () => {
  const stopped = gate<unknown>();
  await withWorker(
    {},
    (worker) =>
      worker.handle("late", async (_, { signal }) => {
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        stopped.open(signal.reason);
      }),
    async ({ client, queue }) => {
      const handle = await client.submit("late", null, { queue, timeout_ms: 100, max_attempts: 1 });

      await assert.rejects(handle.result(LIMIT), (error) => {
        assert(error instanceof TaskFailed);
        assert.equal(error.error.type, "timeout");
        return true;
      });
      assert.equal(((await stopped.promise) as AttemptStopped).why, "timed_out");
    },
  );
});

test("a stale result is dropped, and the worker goes on", async () => {
  const begun = gate<{ taskId: string; fence: number }>();
  const release = gate();
  await withWorker(
    { concurrency: 1, workerId: unique("stale"), heartbeatIntervalMs: 60_000 },
    (worker) =>
      worker
        .handle("contested", async (_, { taskId, fence }) => {
          begun.open({ taskId, fence });
          await release.promise;
          return "mine";
        })
        .handle(add, ({ a, b }) => a + b),
    async ({ client, queue, log, worker }) => {
      const handle = await client.submit("contested", null, { queue });
      const { taskId, fence } = await begun.promise;
      const path = { worker_id: worker.id as string };
      const view = await client.call("GET /api/workers/{worker_id}", { path });
      const results = [{ task_id: taskId, fence, snooze_ms: 3_600_000 }];
      const body = { incarnation: view.incarnation, results };
      await client.call("POST /api/workers/{worker_id}/results", { path, body });
      release.open();

      assert.equal((await log.seen("results_late"))["outcomes"], "stale");
      assert.equal((await handle.get()).state, "scheduled");
      const next = await client.submit(add, { a: 1, b: 1 }, { queue });
      assert.equal(await next.result(LIMIT), 2);
    },
  );
});

test("a worker that the coordinator has forgotten registers again, and its handlers are stopped", async () => {
  const begun = gate();
  const stopped = gate<unknown>();
  let attempts = 0;
  await withWorker(
    { concurrency: 2 },
    (worker) =>
      worker.handle("twice", async (_, { signal }) => {
        attempts += 1;
        if (attempts === 1) {
          begun.open();
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
          stopped.open(signal.reason);
        }
        return attempts;
      }),
    async ({ client, queue, log, worker }) => {
      const handle = await client.submit("twice", null, { queue });
      await begun.promise;
      const path = { worker_id: worker.id as string };
      await client.call("DELETE /api/workers/{worker_id}", { path });

      await log.seen("worker_registered", 2);
      assert.equal(((await stopped.promise) as AttemptStopped).why, "lost");
      assert.equal(await handle.result(LIMIT), 2);
    },
  );
});

test("a second process under the same id stops the worker that is replaced again and again", async () => {
  const workerId = unique("taken");
  const log = new EventLog();
  const worker = new Worker({ url: URL_UNDER_TEST, workerId, queues: [unique("q")], logger: log });
  const running = worker.handle("x", () => null).run({ handleSignals: false });
  const client = newClient();
  for (const round of [1, 2]) {
    await log.seen("worker_registered", round);
    await client.call("POST /api/workers", { body: { worker_id: workerId } });
  }

  assert.equal(await running, "replaced");
  assert(log.events.some((one) => one.event === "worker_id_taken"));
});

test("a worker whose stream breaks goes on over another one, with its running tasks", async () => {
  const relay = await TcpRelay.start(URL_UNDER_TEST);
  const begun = gate();
  const release = gate();
  try {
    await withWorker(
      { url: relay.url, concurrency: 2, transport: "websocket" },
      (worker) =>
        worker
          .handle("long", async (_, { attempt }) => {
            begun.open();
            await release.promise;
            return attempt;
          })
          .handle(add, ({ a, b }) => a + b),
      async ({ client, queue, log }) => {
        const handle = await client.submit("long", null, { queue });
        await begun.promise;
        relay.cut();
        await log.seen("streaming", 2);
        const other = await client.submit(add, { a: 1, b: 2 }, { queue });
        assert.equal(await other.result(LIMIT), 3);
        release.open();

        assert.equal(await handle.result(LIMIT), 1);
        assert.equal(log.events.filter((one) => one.event === "worker_registered").length, 1);
      },
    );
  } finally {
    await relay.stop();
  }
});

test("where WebSockets are refused the worker polls, and streams as soon as it can", async () => {
  const relay = await TcpRelay.start(URL_UNDER_TEST);
  relay.refusesSockets = true;
  try {
    await withWorker(
      { url: relay.url, streamRetryMs: 200 },
      (worker) => worker.handle(add, ({ a, b }) => a + b),
      async ({ client, queue, log }) => {
        await log.seen("stream_unavailable");
        const polled = await client.submit(add, { a: 1, b: 2 }, { queue });
        assert.equal(await polled.result(LIMIT), 3);
        relay.refusesSockets = false;
        await log.seen("streaming");
        const streamed = await client.submit(add, { a: 2, b: 2 }, { queue });
        assert.equal(await streamed.result(LIMIT), 4);
      },
    );
  } finally {
    await relay.stop();
  }
});

test("a worker that is cut off stops its handlers before its lease is over", async () => {
  const relay = await TcpRelay.start(URL_UNDER_TEST);
  const begun = gate();
  const stopped = gate<unknown>();
  let isFirst = true;
  try {
    await withWorker(
      { url: relay.url, heartbeatIntervalMs: 100, concurrency: 1 },
      (worker) =>
        worker.handle("held", async (_, { signal }) => {
          if (isFirst) {
            isFirst = false;
            begun.open();
            await new Promise((resolve) => signal.addEventListener("abort", resolve));
            stopped.open(signal.reason);
          }
          return "done";
        }),
      async ({ client, queue, log }) => {
        const handle = await client.submit("held", null, { queue });
        await begun.promise;
        relay.isAway = true;
        relay.cut();
        assert.equal(((await stopped.promise) as AttemptStopped).why, "lost");
        relay.isAway = false;

        await log.seen("worker_registered", 2);
        assert.equal(await handle.result(LIMIT), "done");
      },
    );
  } finally {
    await relay.stop();
  }
});

test("a stop lets running handlers finish, delivers their results, and leaves", async () => {
  for (const transport of ["websocket", "http"] as const) {
    const queue = unique("wq");
    const begun = gate();
    const release = gate();
    const worker = new Worker({ url: URL_UNDER_TEST, queues: [queue], transport, logger: new EventLog() });
    worker.handle("last", async () => {
      begun.open();
      await release.promise;
      return "finished";
    });
    const running = worker.run({ handleSignals: false });
    const client = newClient();
    const [first, second] = await client.submitMany("last", [1], { queue });
    await begun.promise;
    const id = worker.id as string;

    worker.stop();
    const later = await client.submit("last", 2, { queue });
    release.open();

    assert.equal(await running, "stopped");
    assert.equal(second, undefined);
    assert.equal(await first?.result(LIMIT), "finished");
    assert.equal((await later.get()).state, "queued");
    await assert.rejects(
      client.call("GET /api/workers/{worker_id}", { path: { worker_id: id } }),
      /not found/,
    );
  }
});

test("a hurried worker hands back what runs, without using up an attempt", async () => {
  const queue = unique("wq");
  const begun = gate();
  const worker = new Worker({ url: URL_UNDER_TEST, queues: [queue], logger: new EventLog() });
  worker.handle("stuck", () => {
    begun.open();
    return new Promise(() => undefined);
  });
  const running = worker.run({ handleSignals: false });
  const client = newClient();
  const handle = await client.submit("stuck", null, { queue });
  await begun.promise;

  worker.hurry();
  await running;

  const task = await handle.get();
  assert.equal(task.state, "queued");
  const raw = await RawWorker.register(client, queue);
  assert.equal((await raw.finish("by another")).attempt, 1);
});

test("a worker waits for a coordinator that is not there yet", async () => {
  const relay = await TcpRelay.start(URL_UNDER_TEST);
  relay.isAway = true;
  try {
    await withWorker(
      { url: relay.url },
      (worker) => worker.handle(add, ({ a, b }) => a + b),
      async ({ client, queue, log }) => {
        await log.seen("coordinator_unreachable");
        relay.isAway = false;
        const handle = await client.submit(add, { a: 1, b: 1 }, { queue });

        assert.equal(await handle.result(LIMIT), 2);
      },
    );
  } finally {
    await relay.stop();
  }
});

test("a registration that is refused ends the worker with the reason", async () => {
  const relay = await Relay.start(() => ({
    status: 403,
    body: JSON.stringify({ code: "forbidden", detail: "this token may not work" }),
  }));
  try {
    const worker = new Worker({ url: relay.url, logger: new EventLog() });
    worker.handle("x", () => null);

    await assert.rejects(worker.run({ handleSignals: false }), /may not work/);
  } finally {
    await relay.stop();
  }
});

test("a worker without handlers, with two for one task, or with no slots is refused", async () => {
  const worker = new Worker({ url: URL_UNDER_TEST });

  await assert.rejects(worker.run(), /no task has a handler/);
  assert.throws(() => worker.handle("x", () => 1).handle("x", () => 2), /two handlers/);
  assert.throws(() => new Worker({ concurrency: 0 }), /concurrency/);
});
