import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Client,
  defineTask,
  hasCode,
  RotaError,
  RunCancelled,
  TaskCancelled,
  TaskFailed,
  Unavailable,
  WaitTimeout,
} from "../src/index.js";
import { closedAddress, newClient, RawWorker, Relay, unique, URL_UNDER_TEST } from "./support.js";

const resize = defineTask<{ path: string }, { bytes: number }>("resize");

test("a submitted task is waited for and gives its result", async () => {
  const client = newClient();
  const queue = unique("q");
  const worker = await RawWorker.register(client, queue);

  const handle = await client.submit(resize, { path: "a.png" }, { queue });
  const waiting = handle.result({ timeoutMs: 20_000 });
  const lease = await worker.finish({ bytes: 12 });

  const result: { bytes: number } = await waiting;
  assert.deepEqual(result, { bytes: 12 });
  assert.deepEqual(lease.payload, { path: "a.png" });
  assert.equal((await handle.get()).state, "succeeded");
});

test("many tasks are submitted at once, each with its payload", async () => {
  const client = newClient();
  const queue = unique("q");
  const worker = await RawWorker.register(client, queue);

  const payloads = Array.from({ length: 50 }, (_, number) => ({ path: `${number}.png` }));
  const handles = await client.submitMany(resize, payloads, { queue });
  const leases = await worker.lease(50);

  assert.equal(new Set(handles.map((one) => one.id)).size, 50);
  assert.deepEqual(
    leases.map((one) => one.payload),
    payloads,
  );
});

test("the same key is the same task", async () => {
  const client = newClient();
  const queue = unique("q");

  const first = await client.submit(resize, { path: "a" }, { queue, key: "k" });
  const second = await client.submit(resize, { path: "b" }, { queue, key: "k" });

  assert.equal(second.id, first.id);
  assert.equal(first.isDuplicate, false);
  assert.equal(second.isDuplicate, true);
});

test("a submission whose answer is lost is repeated, and the task exists once", async () => {
  const queue = unique("q");
  const relay = await Relay.start((_, index) => (index === 0 ? "drop_answer" : "pass"));
  try {
    const handle = await newClient(relay.url).submit(resize, { path: "a" }, { queue });

    const found = [];
    for await (const task of newClient().listTasks({ queue })) {
      found.push(task.id);
    }
    assert.deepEqual(found, [handle.id]);
    assert.equal(handle.isDuplicate, false);
    assert.equal(relay.seen.length, 2);
  } finally {
    await relay.stop();
  }
});

test("a request that is not safe to repeat is sent once when its answer is lost", async () => {
  const client = newClient();
  const { id } = await client.submit(resize, { path: "a" }, { queue: unique("q") });
  const relay = await Relay.start(() => "drop_answer");
  try {
    await assert.rejects(newClient(relay.url).cancelTask(id), (error) => {
      assert(error instanceof Unavailable);
      assert.equal(error.isSent, true);
      return true;
    });
    assert.equal(relay.seen.length, 1);
  } finally {
    await relay.stop();
  }
});

test("another coordinator is asked when one cannot be reached", async () => {
  const away = await closedAddress();
  const client = newClient(`${away}, ${URL_UNDER_TEST}`);

  for (let round = 0; round < 3; round += 1) {
    await client.submit(resize, { path: "a" }, { queue: unique("q") });
  }

  assert.equal(client.transport.address, URL_UNDER_TEST);
});

test("a coordinator that says it cannot serve is left for another one", async () => {
  const body = JSON.stringify({ code: "not_leader", title: "", status: 503, detail: "no leader" });
  const relay = await Relay.start(() => ({ status: 503, body }));
  try {
    const client = newClient(`${relay.url},${URL_UNDER_TEST}`);
    for (let round = 0; round < 3; round += 1) {
      const queue = unique("q");
      const handle = await client.submit(resize, { path: "a" }, { queue });
      assert.equal((await handle.get()).queue, queue);
    }
    assert.equal(client.transport.address, URL_UNDER_TEST);
  } finally {
    await relay.stop();
  }
});

test("without any coordinator the error says which address was tried", async () => {
  const away = await closedAddress();

  await assert.rejects(newClient(away).getTask("0"), (error) => {
    assert(error instanceof Unavailable);
    assert.equal(error.code, "unavailable");
    assert.equal(error.isSent, false);
    assert(error.message.includes(away));
    return true;
  });
});

test("a wait ends when its time is over, and the task goes on", async () => {
  const client = newClient();
  const handle = await client.submit(resize, { path: "a" }, { queue: unique("q") });

  await assert.rejects(handle.result({ timeoutMs: 50 }), (error) => {
    assert(error instanceof WaitTimeout);
    assert(error.message.includes("still queued"));
    return true;
  });
  assert.equal((await handle.get()).state, "queued");
});

test("a wait is refused that would have no end", async () => {
  const wait = newClient().task("0").wait({ timeoutMs: Number.POSITIVE_INFINITY });

  await assert.rejects(wait, (error) => hasCode(error, "invalid"));
});

test("a wait without any coordinator ends when its time is over", async () => {
  const away = await closedAddress();

  await assert.rejects(
    newClient(away).task("0").wait({ timeoutMs: 100 }),
    (error) => error instanceof Unavailable,
  );
});

test("an aborted wait rejects with the reason at once", async () => {
  const client = newClient();
  const handle = await client.submit(resize, { path: "a" }, { queue: unique("q") });
  const controller = new AbortController();

  const waiting = handle.wait({ signal: controller.signal, timeoutMs: 60_000 });
  controller.abort(new Error("not interested"));

  await assert.rejects(waiting, /not interested/);
});

test("a failed task rejects with the error of its handler", async () => {
  const client = newClient();
  const queue = unique("q");
  const worker = await RawWorker.register(client, queue);
  const handle = await client.submit(resize, { path: "a" }, { queue, max_attempts: 1 });
  const [lease] = await worker.lease();
  assert(lease !== undefined);
  const error = { type: "DiskFull", message: "no room", details: { free: 0 } };
  await worker.report({ task_id: lease.task_id, fence: lease.fence, ok: false, error });

  await assert.rejects(handle.result({ timeoutMs: 10_000 }), (raised) => {
    assert(raised instanceof TaskFailed);
    assert.equal(raised.error.type, "DiskFull");
    assert.deepEqual(raised.error.details, { free: 0 });
    return true;
  });
  assert.equal((await handle.retry()).state, "queued");
});

test("a cancelled task rejects, and is counted by a dry run before", async () => {
  const client = newClient();
  const queue = unique("q");
  const handle = await client.submit(resize, { path: "a" }, { queue });

  const dry = await client.cancelTasks({ queue, dry_run: true });
  const wet = await client.cancelTasks({ queue });

  assert.deepEqual([dry.count, wet.count], [1, 1]);
  await assert.rejects(handle.result({ timeoutMs: 10_000 }), (error) => error instanceof TaskCancelled);
});

test("errors have the code and the facts of the answer", async () => {
  const client = newClient();

  await assert.rejects(client.getTask("0000000000000000"), (error) => {
    assert(hasCode(error, "task_not_found"));
    assert.equal(error.status, 404);
    assert(error.message.includes("not found"));
    return true;
  });
  await assert.rejects(client.submit("x", null, { priority: 10 ** 9 }), (error) => {
    assert(hasCode(error, "invalid"));
    assert(error instanceof RotaError);
    assert.match(String(error.facts["field"]), /priority/);
    return true;
  });
});

test("a payload that JSON cannot write is refused before anything is sent", async () => {
  await assert.rejects(newClient().submit("x", { number: 1n }), (error) => hasCode(error, "invalid"));
});

test("lists are read page by page", async () => {
  const client = newClient();
  const queue = unique("q");
  await client.submitMany("x", [1, 2, 3, 4, 5], { queue });

  const found: unknown[] = [];
  for await (const task of client.listTasks({ queue, limit: 2 })) {
    found.push(task.payload);
  }

  assert.deepEqual(found, [5, 4, 3, 2, 1]);
});

test("ids cannot lead to another endpoint", async () => {
  const client = newClient();

  await assert.rejects(client.getTask("../workers"), (error) => hasCode(error, "task_not_found"));
  await assert.rejects(client.getTask(".."), (error) => hasCode(error, "invalid"));
});

test("a run is started, signalled and gives its output", async () => {
  const client = newClient();
  const workflow = unique("greeting").replaceAll("-", "_");
  await client.putWorkflow({
    name: workflow,
    initial_node: "ask",
    nodes: { ask: { wait_for: { event: "name" }, output: { "output.name": "result" } } },
    transitions: [],
    output: { name: "output.name" },
  });

  const run = await client.startRun<{ name: unknown }>(workflow, {}, { key: unique("run") });
  await run.signal("name", "Ada");

  assert.deepEqual(await run.output({ timeoutMs: 10_000 }), { name: "Ada" });
});

test("a cancelled run rejects with RunCancelled", async () => {
  const client = newClient();
  const workflow = unique("waiting").replaceAll("-", "_");
  await client.putWorkflow({
    name: workflow,
    initial_node: "ask",
    nodes: { ask: { wait_for: { event: "name" } } },
    transitions: [],
  });
  const run = await client.startRun(workflow, {});

  await run.cancel({ reason: "not needed" });

  await assert.rejects(run.output({ timeoutMs: 10_000 }), (error) => error instanceof RunCancelled);
  assert.equal((await run.wait()).state, "cancelled");
});

test("addresses are checked, and a refused one is not shown with its password", () => {
  for (const url of ["ftp://host", "http://u:secret@host", "http://a/?x=1", ",", "http://a,http://a"]) {
    assert.throws(
      () => new Client({ url }),
      (error) => hasCode(error, "invalid") && !error.message.includes("secret"),
    );
  }
  assert.throws(
    () => new Client({ token: "a\nb" }),
    (error) => hasCode(error, "invalid"),
  );
});
