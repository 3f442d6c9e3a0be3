import asyncio
import re
from pathlib import Path

import pytest

from tests.gateways.serving import Api, Json, served
from tests.gateways.test_access import closed, token
from tests.gateways.working import HOLD, Bench, Broken

__all__ = ["closed"]  # a fixture

ONE = """
name: one
input: {type: object, required: [x], properties: {x: {type: integer}}}
initial_node: a
nodes:
  a: {task: work, input: {x: input.x}, output: {state.seen: result, output.r: result}}
"""
PANEL = """
name: panel
initial_node: ask
nodes:
  ask: {task: ask}
  judge: {task: judge, input: {by: branch.item}}
  tally: {task: tally, input: {verdicts: state.verdicts}, output: {output.winner: result}}
transitions:
  - {id: panel, from: ask, to: judge, foreach: input.judges}
  - from: judge
    to: tally
    synchronization: {joins_transition: panel, merge: {target: state.verdicts}}
"""
WAITING = """
name: waiting
initial_node: gate
nodes:
  gate: {wait_for: {event: go}, output: {output.said: result}}
"""


@pytest.fixture
async def bench(api: Api) -> Bench:
    return await Bench.at(api)


# --- headers -------------------------------------------------------------------------------------

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("head", "field", "expected"),
    [
        (TRACEPARENT, None, {"traceparent": TRACEPARENT}),
        (TRACEPARENT, {"traceparent": "given"}, {"traceparent": "given"}),
        (TRACEPARENT.upper(), None, None),
        ("00-short", None, None),
        (TRACEPARENT + "x" * 600, None, None),
        (None, None, None),
    ],
)
async def test_the_tasks_of_a_run_have_the_traceparent_of_its_request_or_its_headers(
    bench: Bench, head: str | None, field: Json, expected: Json
) -> None:
    await bench.put(ONE)
    body = {"workflow": "one", "input": {"x": 1}}
    if field is not None:
        body["headers"] = field

    headers = {} if head is None else {"traceparent": head}
    answer = await bench.api.post("/api/runs", body, headers=headers)
    (lease,) = await bench.worker.lease()
    task = (await bench.api.get(f"/api/tasks/{lease['task_id']}")).json()

    assert answer.status_code == 201
    assert lease.get("headers") == expected
    assert task.get("headers") == expected


# --- starting and looking ------------------------------------------------------------------------


async def test_a_run_goes_from_its_input_to_its_output(bench: Bench) -> None:
    await bench.put(ONE)
    run_id = await bench.start("one", {"x": 1})

    before = await bench.run(run_id)
    (lease,) = await bench.worker.lease()
    await bench.worker.finish(lease, 7)
    after = await bench.run(run_id)

    assert re.fullmatch("[0-9a-f]{16}", run_id)
    assert (before["state"], before["context"]["state"]) == ("running", {})
    assert (lease["name"], lease["payload"], lease["run_id"]) == ("work", {"x": 1}, run_id)
    assert after["state"] == "completed"
    assert after["context"] == {"input": {"x": 1}, "state": {"seen": 7}, "output": {"r": 7}}
    assert after["output"] == {"r": 7}
    assert (after["workflow"], after["version"], after["error"]) == ("one", 1, None)
    now_ms = bench.api.clock.now_ms()
    assert after["created_at_ms"] == after["started_at_ms"] == after["finished_at_ms"] == now_ms
    assert after["parent_run_id"] is None


async def test_the_tasks_of_a_run_say_whose_they_are(bench: Bench) -> None:
    await bench.put(ONE)
    run_id = await bench.start("one", {"x": 1})
    (lease,) = await bench.worker.lease()

    alone = await bench.api.submit(name="free")
    task = await bench.api.task(lease["task_id"])
    (other,) = await bench.worker.lease()
    listed = await bench.items("/api/tasks?name=work")

    assert (task["run_id"], task["token_id"]) == (run_id, f"{run_id}.1")
    assert (listed[0]["run_id"], listed[0]["token_id"]) == (run_id, f"{run_id}.1")
    assert (alone["run_id"], alone["token_id"]) == (None, None)
    assert other["run_id"] is None


async def test_waiting_for_a_run_ends_with_the_run(bench: Bench) -> None:
    await bench.put(ONE)
    run_id = await bench.start("one", {"x": 1})
    (lease,) = await bench.worker.lease()

    waiting = asyncio.create_task(bench.api.get(f"/api/runs/{run_id}?wait_ms=20000"))
    await bench.worker.finish(lease, 7)

    assert (await waiting).json()["state"] == "completed"


async def test_waiting_no_longer_than_asked(bench: Bench) -> None:
    await bench.put(WAITING)
    run_id = await bench.start("waiting")

    answer = await bench.api.get(f"/api/runs/{run_id}?wait_ms=20")

    assert answer.json()["state"] == "running"


async def test_a_start_that_waits_is_answered_with_the_end_of_the_run(bench: Bench) -> None:
    await bench.put(ONE)
    body = {"workflow": "one", "input": {"x": 1}, "key": "k"}

    starting = asyncio.create_task(bench.api.post("/api/runs?wait_ms=20000", body))
    (lease,) = await bench.worker.lease(wait_ms=20_000)
    again = asyncio.create_task(bench.api.post("/api/runs?wait_ms=20000", body))
    await bench.worker.finish(lease, 7)
    answer, repeated = await starting, await again

    ended, run = answer.json(), await bench.run(answer.json()["id"])
    assert (answer.status_code, ended) == (201, run)
    assert (ended["state"], ended["output"], ended["duplicate"]) == ("completed", {"r": 7}, False)
    assert (repeated.status_code, repeated.json()) == (200, {**run, "duplicate": True})


async def test_a_start_waits_no_longer_than_asked_and_the_run_goes_on(bench: Bench) -> None:
    await bench.put(WAITING)

    answer = await bench.api.post("/api/runs?wait_ms=20", {"workflow": "waiting"})
    run_id = answer.json()["id"]
    await bench.api.post(f"/api/runs/{run_id}/signal", {"name": "go", "payload": 1})

    assert (answer.status_code, answer.json()["state"]) == (201, "running")
    assert (await bench.run(run_id))["state"] == "completed"


async def test_a_start_that_waits_is_refused_like_any_other(bench: Bench) -> None:
    await bench.put(ONE)

    unknown = await bench.api.post("/api/runs?wait_ms=20000", {"workflow": "none"})
    unfit = await bench.api.post("/api/runs?wait_ms=20000", {"workflow": "one", "input": {}})
    endless = await bench.api.post("/api/runs?wait_ms=99999999", {"workflow": "one"})

    assert (unknown.status_code, unfit.status_code, endless.status_code) == (404, 400, 400)
    assert await bench.items("/api/runs") == []


async def test_the_same_key_is_the_same_run(bench: Bench) -> None:
    await bench.put(ONE)
    body = {"workflow": "one", "input": {"x": 1}, "key": "k"}

    first = await bench.api.post("/api/runs", body)
    again = await bench.api.post("/api/runs", {**body, "input": {"x": 2}})
    await bench.drive({"work": lambda _: 7})
    ended = await bench.api.post("/api/runs", body)

    assert (first.status_code, again.status_code, ended.status_code) == (201, 200, 200)
    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    assert first.json()["id"] == again.json()["id"] == ended.json()["id"]
    assert ended.json()["context"]["output"] == {"r": 7}


async def test_a_version_is_chosen_in_either_way(bench: Bench) -> None:
    await bench.put(ONE)
    await bench.put(ONE.replace("task: work", "task: other"))
    asked: list[Json] = [
        {"workflow": "one"},
        {"workflow": "one@1"},
        {"workflow": "one", "version": 1},
    ]
    asked.append({"workflow": "one@1", "version": 1})

    answers = [await bench.api.post("/api/runs", {**one, "input": {"x": 1}}) for one in asked]
    torn = await bench.api.post("/api/runs", {"workflow": "one@1", "version": 2})

    assert [answer.json()["version"] for answer in answers] == [2, 1, 1, 1]
    assert (torn.status_code, torn.json()["field"]) == (400, "version")


async def test_an_input_that_does_not_fit_starts_nothing(bench: Bench) -> None:
    await bench.put(ONE)

    for bad in ({}, {"x": "text"}, 5, None):
        answer = await bench.api.post("/api/runs", {"workflow": "one", "input": bad})
        assert (answer.status_code, answer.json()["field"]) == (400, "input")

    assert await bench.items("/api/runs") == []
    assert await bench.worker.lease() == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"workflow": "nobody"}, 404, "workflow_not_found"),
        ({"workflow": "one@7"}, 404, "workflow_not_found"),
        ({"workflow": "one", "version": 0}, 400, "invalid"),
        ({"workflow": "one", "colour": 1}, 400, "invalid"),
        ({}, 400, "invalid"),
        ({"workflow": "one", "timeout_ms": 0}, 400, "invalid"),
    ],
)
async def test_a_start_that_cannot_be_is_refused(
    bench: Bench, body: dict[str, object], status: int, code: str
) -> None:
    await bench.put(ONE)

    answer = await bench.api.post("/api/runs", body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_an_input_with_an_impossible_number_is_refused(bench: Bench) -> None:
    await bench.put(WAITING)

    content = '{"workflow": "waiting", "input": {"x": 1e400}}'
    answer = await bench.api.client.post("/api/runs", content=content)

    assert (answer.status_code, answer.json()["field"]) == (400, "input")


async def test_runs_are_listed_newest_first_by_workflow_and_state(bench: Bench) -> None:
    await bench.put(ONE)
    await bench.put(WAITING)
    ones = [await bench.start("one", {"x": number}) for number in range(3)]
    waiting = await bench.start("waiting")
    await bench.steer(waiting, "cancel")

    first = (await bench.api.get("/api/runs?limit=3")).json()
    rest = (await bench.api.get(f"/api/runs?limit=3&cursor={first['next_cursor']}")).json()

    assert [run["id"] for run in first["items"]] == [waiting, ones[2], ones[1]]
    assert [run["id"] for run in rest["items"]] == [ones[0]]
    assert rest["next_cursor"] is None
    assert [run["id"] for run in await bench.items("/api/runs?workflow=waiting")] == [waiting]
    assert [run["id"] for run in await bench.items("/api/runs?state=cancelled")] == [waiting]
    assert await bench.items("/api/runs?state=cancelled&workflow=one") == []
    assert (await bench.api.get("/api/runs?state=odd")).status_code == 400
    assert (await bench.api.get("/api/runs?cursor=odd")).status_code == 400


@pytest.mark.parametrize("run_id", ["0000000000000001", "odd", "%00"])
@pytest.mark.parametrize("verb", ["", "/tokens", "/journal", "/graph", "/artifacts"])
async def test_a_run_that_is_not_there_is_not_found(api: Api, run_id: str, verb: str) -> None:
    answer = await api.get(f"/api/runs/{run_id}{verb}")

    assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")
    assert "not found" in answer.json()["detail"]


async def test_a_run_survives_a_restart_at_every_step(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        bench = await Bench.at(api)
        await bench.put(PANEL)
        run_id = await bench.start("panel", {"judges": [1, 2, 3]})
    seen, state = [], ""
    for _ in range(5):
        async with served(tmp_path) as api:
            bench = await Bench.at(api)
            if leases := await bench.worker.lease(1):
                seen.append(leases[0]["name"])
                await bench.worker.finish(leases[0], 1)
            state = (await bench.run(run_id))["state"]

    assert seen == ["ask", "judge", "judge", "judge", "tally"]
    assert state == "completed"


# --- looking inside ------------------------------------------------------------------------------


async def test_tokens_tell_where_the_run_is(bench: Bench) -> None:
    await bench.put(PANEL)
    run_id = await bench.start("panel", {"judges": ["a", "b", "c"]})
    (ask,) = await bench.worker.lease()
    await bench.worker.finish(ask)
    leases = await bench.worker.lease(2)
    await bench.worker.finish(leases[0], "yes")

    root, first, second, third = await bench.tokens(run_id)

    assert (root["id"], root["node_id"], root["state"]) == (f"{run_id}.1", "ask", "completed")
    assert (root["path_id"], root["parent_token_id"]) == ("root", None)
    assert (root["fan_out_transition_id"], root["branch_index"]) == (None, None)
    assert [one["state"] for one in (first, second, third)] == [
        "waiting_for_siblings",
        "executing",
        "dispatched",
    ]
    assert second["path_id"] == "root.ask.1"
    assert second["fan_out_transition_id"] == "panel"
    assert (second["branch_index"], second["branch_total"]) == (1, 3)
    assert second["parent_token_id"] == root["id"]
    assert second["task_id"] == leases[1]["task_id"]


async def test_tokens_come_in_pages(bench: Bench) -> None:
    await bench.put(PANEL)
    run_id = await bench.start("panel", {"judges": list(range(5))})
    await bench.drive({"ask": lambda _: 0, "judge": lambda p: p["by"], "tally": len})

    pages = [(await bench.api.get(f"/api/runs/{run_id}/tokens?limit=3")).json()]
    while cursor := pages[-1]["next_cursor"]:
        path = f"/api/runs/{run_id}/tokens?limit=3&cursor={cursor}"
        pages.append((await bench.api.get(path)).json())

    found = [token for page in pages for token in page["items"]]
    assert len(pages) == 3
    assert [token["id"] for token in found] == [f"{run_id}.{number}" for number in range(1, 8)]
    assert (await bench.api.get(f"/api/runs/{run_id}/tokens?cursor=odd")).status_code == 400


async def test_the_journal_has_every_event_and_its_decisions(bench: Bench) -> None:
    await bench.put(ONE)
    run_id = await bench.start("one", {"x": 1})
    (lease,) = await bench.worker.lease()
    await bench.worker.finish(lease, 7)

    first = (await bench.api.get(f"/api/runs/{run_id}/journal?limit=1")).json()
    rest = await bench.items(f"/api/runs/{run_id}/journal?after={first['next_cursor']}")

    (start,) = first["items"]
    (end,) = rest
    assert (start["number"], start["event"]["type"]) == (1, "RunStarted")
    assert start["links"] == {"1": lease["task_id"]}
    assert (end["number"], end["event"]["type"], end["event"]["result"]) == (2, "TaskEnded", 7)
    assert end["decisions"][-1] == {
        "type": "SetRunState",
        "state": "completed",
        "output": {"r": 7},
    }


async def test_the_graph_counts_tokens_and_what_joins_wait_for(bench: Bench) -> None:
    await bench.put(PANEL)
    run_id = await bench.start("panel", {"judges": ["a", "b", "c"]})
    (ask,) = await bench.worker.lease()
    await bench.worker.finish(ask)
    leases = await bench.worker.lease(2)
    await bench.worker.finish(leases[0], "yes")

    graph = (await bench.api.get(f"/api/runs/{run_id}/graph")).json()

    nodes = {node["id"]: node for node in graph["nodes"]}
    fan_out, join = graph["transitions"]
    assert nodes["ask"]["tokens"] == {"completed": 1}
    assert nodes["judge"]["tokens"] == {
        "waiting_for_siblings": 1,
        "executing": 1,
        "dispatched": 1,
    }
    assert (nodes["tally"]["kind"], nodes["tally"]["tokens"]) == ("task", {})
    assert (fan_out["id"], fan_out["from"], fan_out["to"]) == ("panel", "ask", "judge")
    assert (fan_out["taken"], fan_out["join"]) == (3, None)
    assert (join["id"], join["taken"]) == ("transitions[1]", 1)
    counts = {"arrived": 1, "needed": 3, "scopes": 1, "fired": 0, "cancelled": 0, "failed": 0}
    assert join["join"] == {**counts, "open_scopes": [1]}


async def test_the_graph_tells_which_transitions_were_not_taken(bench: Bench) -> None:
    text = """
name: fork
initial_node: a
nodes: {a: {}, big: {}, small: {}}
transitions:
  - {id: up, from: a, to: big, condition: input.x > 5}
  - {id: down, from: a, to: small, condition: input.x <= 5}
"""
    run = await bench.carry_out(text, {"x": 1}, {})

    graph = (await bench.api.get(f"/api/runs/{run['id']}/graph")).json()

    taken = {one["id"]: (one["taken"], one["not_taken"]) for one in graph["transitions"]}
    assert taken == {"up": (0, 1), "down": (1, 0)}


# --- steering ------------------------------------------------------------------------------------


async def test_a_cancelled_run_takes_its_tasks_along(bench: Bench) -> None:
    await bench.put(PANEL)
    run_id = await bench.start("panel", {"judges": [1, 2]})
    await bench.drive({"ask": lambda _: 0, "judge": lambda _: HOLD})

    run = await bench.steer(run_id, "cancel", {"reason": "enough"})
    beat = await bench.worker.call(
        "heartbeat",
        {
            "incarnation": bench.worker.incarnation,
            "running": [lease["task_id"] for lease in bench.kept],
        },
    )
    late = await bench.worker.finish(bench.kept[0], 1)

    assert (run["state"], run["error"]["message"]) == ("cancelled", "enough")
    assert set(beat.json()["cancel"]) == {lease["task_id"] for lease in bench.kept}
    assert late == "stale"
    assert {token["state"] for token in await bench.tokens(run_id)} == {"completed", "cancelled"}


async def test_a_paused_run_begins_nothing_new_until_it_is_resumed(bench: Bench) -> None:
    await bench.put(PANEL)
    run_id = await bench.start("panel", {"judges": [1]})
    (ask,) = await bench.worker.lease()

    paused = await bench.steer(run_id, "pause")
    await bench.worker.finish(ask)
    while_paused = await bench.worker.lease()
    resumed = await bench.steer(run_id, "resume")
    (judge,) = await bench.worker.lease()

    assert (paused["state"], while_paused, resumed["state"]) == ("paused", [], "running")
    assert judge["name"] == "judge"


async def test_a_failed_run_goes_on_from_where_it_failed(bench: Bench) -> None:
    def breaks(_: object) -> object:
        raise Broken("no")

    await bench.put(PANEL)
    run_id = await bench.start("panel", {"judges": [1, 2]})
    await bench.drive({"ask": lambda _: 0, "judge": breaks})
    failed = await bench.run(run_id)

    retried = await bench.steer(run_id, "retry")
    await bench.drive({"judge": lambda p: p["by"], "tally": lambda p: p["verdicts"]})
    ended = await bench.run(run_id)

    assert (failed["state"], failed["error"]["type"]) == ("failed", "Broken")
    assert failed["error"]["node"] == "judge"
    assert (retried["state"], retried["error"]) == ("running", None)
    assert (ended["state"], ended["output"]) == ("completed", {"winner": [1, 2]})


async def test_a_signal_reaches_a_run_that_waits_or_will_wait(bench: Bench) -> None:
    await bench.put(WAITING)
    run_id = await bench.start("waiting")
    (token_,) = await bench.tokens(run_id)

    run = await bench.steer(run_id, "signal", {"name": "go", "payload": {"by": "me"}})

    assert token_["state"] == "waiting_for_event"
    assert (run["state"], run["output"]) == ("completed", {"said": {"by": "me"}})


ROUNDS = """
name: rounds
initial_node: ask
nodes: {ask: {approval: true}, publish: {task: publish}}
transitions:
  - {from: ask, to: ask, max_iterations: 1}
  - {from: ask, to: publish, priority: 2}
"""


async def test_two_answers_to_one_question_do_not_answer_the_next_one(bench: Bench) -> None:
    await bench.put(ROUNDS)
    run_id = await bench.start("rounds")
    (first,) = await bench.tokens(run_id)
    yes = {"name": "ask", "payload": True, "token_id": first["id"]}

    await bench.steer(run_id, "signal", yes)
    refused = await bench.api.post(f"/api/runs/{run_id}/signal", yes)

    assert (refused.status_code, refused.json()["code"]) == (409, "nothing_to_approve")
    second = (await bench.tokens(run_id))[-1]
    assert (second["node_id"], second["state"]) == ("ask", "waiting_for_event")
    await bench.steer(run_id, "signal", {**yes, "token_id": second["id"]})
    refused = await bench.api.post(
        f"/api/runs/{run_id}/signal", {"name": "ask", "payload": {"approved": False}}
    )
    assert (refused.status_code, refused.json()["code"]) == (409, "nothing_to_approve")
    assert (await bench.run(run_id))["state"] == "running"


async def test_a_signal_with_a_known_key_changes_nothing(bench: Bench) -> None:
    await bench.put(ROUNDS)
    run_id = await bench.start("rounds")
    yes = {"name": "ask", "payload": True, "key": "yes-1"}

    first = await bench.steer(run_id, "signal", yes)
    again = await bench.steer(run_id, "signal", yes)

    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert [one["state"] for one in await bench.tokens(run_id)] == [
        "completed",
        "waiting_for_event",
    ]
    await bench.steer(run_id, "cancel")
    assert (await bench.steer(run_id, "signal", yes))["duplicate"]


async def test_a_signal_for_a_token_reaches_it_or_is_refused(bench: Bench) -> None:
    await bench.put(WAITING)
    run_id = await bench.start("waiting")
    (token_,) = await bench.tokens(run_id)
    path = f"/api/runs/{run_id}/signal"

    refused = [
        await bench.api.post(path, {"name": "go", "token_id": one})
        for one in (f"{run_id}.99", f"{run_id}.{'9' * 60}", f"{run_id}.x", "nonsense", "1.1")
    ]
    run = await bench.steer(run_id, "signal", {"name": "go", "token_id": token_["id"]})

    assert [(one.status_code, one.json()["code"]) for one in refused] == [
        (409, "illegal_state"),
        (409, "illegal_state"),
        (400, "invalid"),
        (400, "invalid"),
        (400, "invalid"),
    ]
    assert run["state"] == "completed"


SAGA = """
name: saga
initial_node: pay
nodes: {pay: {task: pay, compensate: refund}, ship: {task: ship, retry: {max_attempts: 1}}}
transitions: [{from: pay, to: ship}]
"""


async def test_cancelling_while_compensating_keeps_the_error_and_force_lists_the_rest(
    bench: Bench,
) -> None:
    await bench.put(SAGA)
    run_id = await bench.start("saga")
    (pay,) = await bench.worker.lease()
    await bench.worker.finish(pay)
    (ship,) = await bench.worker.lease()
    await bench.worker.fail(ship)

    cancelled = await bench.steer(run_id, "cancel", {"reason": "enough"})
    forced = await bench.steer(run_id, "cancel", {"reason": "now", "force": True})

    assert (cancelled["state"], forced["state"]) == ("running", "failed")
    error = forced["error"]
    assert (error["type"], error["node"], error["cancelled"]) == ("Error", "ship", "enough")
    assert [one["node"] for one in error["not_undone"]] == ["pay"]


async def test_a_run_of_many_steps_goes_on_by_itself(bench: Bench) -> None:
    await bench.put(
        "{name: long, initial_node: a, nodes: {a: {}},"
        " transitions: [{from: a, to: a, max_iterations: 3000}]}"
    )
    run_id = await bench.start("long")

    run = (await bench.api.get(f"/api/runs/{run_id}?wait_ms=30000")).json()

    assert run["state"] == "completed"


async def test_a_fork_begins_in_the_middle_with_another_state(bench: Bench) -> None:
    run = await bench.carry_out(ONE, {"x": 1}, {"work": lambda _: 7})

    answer = await bench.api.post(
        f"/api/runs/{run['id']}/fork", {"from_node": "a", "state": {"seen": 0}}
    )
    forked = answer.json()

    assert answer.status_code == 201
    assert forked["id"] != run["id"]
    assert (forked["forked_from"], forked["context"]["state"]) == (run["id"], {"seen": 0})
    assert (await bench.run(run["id"]))["context"]["state"] == {"seen": 7}


async def test_wishes_that_do_not_fit_the_state_are_refused(bench: Bench) -> None:
    await bench.put(WAITING)
    run_id = await bench.start("waiting")
    refused = [await bench.api.post(f"/api/runs/{run_id}/{verb}") for verb in ("resume", "retry")]
    await bench.steer(run_id, "cancel")
    refused += [
        await bench.api.post(f"/api/runs/{run_id}/{verb}")
        for verb in ("cancel", "pause", "resume", "retry")
    ]
    refused.append(await bench.api.post(f"/api/runs/{run_id}/signal", {"name": "go"}))

    assert {answer.status_code for answer in refused} == {409}
    assert {answer.json()["code"] for answer in refused} == {"illegal_state"}


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("cancel", None),
        ("pause", None),
        ("resume", None),
        ("retry", None),
        ("signal", {"name": "go"}),
        ("fork", {"from_node": "a"}),
    ],
)
async def test_a_run_that_is_not_there_cannot_be_steered(
    api: Api, verb: str, body: dict[str, str] | None
) -> None:
    answer = await api.post(f"/api/runs/0000000000000001/{verb}", body)

    assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")


async def test_a_fork_from_a_node_that_is_not_there_is_refused(bench: Bench) -> None:
    await bench.put(WAITING)
    run_id = await bench.start("waiting")

    answer = await bench.api.post(f"/api/runs/{run_id}/fork", {"from_node": "b"})
    odd = await bench.api.post(f"/api/runs/{run_id}/fork", {"from_node": "gate", "state": 5})

    assert (answer.status_code, answer.json()["code"]) == (404, "node_not_found")
    assert (odd.status_code, odd.json()["field"]) == (400, "state")


# --- time ----------------------------------------------------------------------------------------


async def test_a_run_that_takes_too_long_is_timed_out_once(bench: Bench) -> None:
    await bench.put(WAITING)
    run_id = await bench.start("waiting", timeout_ms=1_000)

    await bench.api.turn(1_000)
    first = await bench.run(run_id)
    await bench.api.turn(60_000)

    assert (first["state"], first["error"]["type"]) == ("timed_out", "timeout")
    assert await bench.run(run_id) == first


async def test_two_limits_that_are_over_at_once_end_a_run_once(bench: Bench) -> None:
    text = """
name: both
timeout_ms: 1000
initial_node: gate
nodes: {gate: {wait_for: {event: go, timeout_ms: 1000}}}
"""
    await bench.put(text)
    run_id = await bench.start("both")

    await bench.api.turn(5_000)

    ends = [
        decision["state"]
        for entry in await bench.items(f"/api/runs/{run_id}/journal")
        for decision in entry["decisions"]
        if decision["type"] == "SetRunState"
    ]
    assert len(ends) == 1


async def test_ended_runs_are_forgotten_when_their_time_is_over(tmp_path: Path) -> None:
    async with served(tmp_path, history_keep_ms=10_000) as api:
        bench = await Bench.at(api)
        await bench.put("name: child\ninitial_node: a\nnodes: {a: {}}")
        await bench.put(
            "name: holder\ninitial_node: sub\nnodes: {sub: {workflow: child}, gate: {wait_for: "
            "{event: go}}}\ntransitions: [{from: sub, to: gate}]"
        )
        holder = await bench.start("holder", key="k")
        ended = await bench.start("child")

        await api.turn(10_001)
        kept = {run["id"] for run in await bench.items("/api/runs")}
        await bench.steer(holder, "signal", {"name": "go"})
        await api.turn(10_001)

        assert holder in kept
        assert len(kept) == 2  # the holder, and the child it started
        assert ended not in kept
        assert await bench.items("/api/runs") == []
        assert (await bench.api.get(f"/api/runs/{holder}")).status_code == 404
        assert await bench.start("holder", key="k") != holder


# --- who may -------------------------------------------------------------------------------------


async def test_each_scope_opens_its_part_of_runs(closed: Api) -> None:
    admin, submit = await token(closed, "admin"), await token(closed, "submit")
    read, worker = await token(closed, "read"), await token(closed, "worker")
    bound = await token(closed, "submit", queues=("a",))

    async def status(who: dict[str, str], method: str, path: str, content: str = "") -> int:
        answer = await closed.client.request(method, path, content=content, headers=who)
        return answer.status_code

    start = '{"workflow": "waiting"}'
    put = ("PUT", "/api/workflows/waiting", WAITING)
    assert [await status(who, *put) for who in (submit, read, worker, admin)] == [403] * 3 + [201]
    runs = [await status(who, "POST", "/api/runs", start) for who in (read, worker, bound, submit)]
    assert runs == [403, 403, 403, 201]
    looks = [await status(who, "GET", "/api/runs") for who in (worker, bound, read, submit)]
    assert looks == [403, 403, 200, 200]
    path = "/api/runs/0000000000000001/artifacts/a?task_id=0000000000000001&fence=1"
    assert [await status(who, "PUT", path) for who in (read, submit, worker)] == [403, 403, 404]
