"""Every construct of workflows, over HTTP, with a plain worker."""

from typing import Any

import pytest

from tests.gateways.serving import Api, held
from tests.gateways.working import HOLD, Bench, Broken


@pytest.fixture
async def bench(api: Api) -> Bench:
    return await Bench.at(api)


def echo(payload: Any) -> Any:
    return payload


async def test_branches_of_several_nodes(bench: Bench) -> None:
    text = """
name: several
initial_node: a
nodes:
  a: {}
  fetch: {task: fetch, input: {n: branch.item}, output: {state.page: result}}
  count: {task: count, input: {page: state.page}}
  end: {}
transitions:
  - {id: fan, from: a, to: fetch, foreach: input.items}
  - {from: fetch, to: count}
  - from: count
    to: end
    synchronization: {joins_transition: fan, merge: {target: state.counts}}
output: {counts: state.counts, leaked: has(state.page)}
"""
    handlers = {"fetch": lambda p: f"page {p['n']}", "count": lambda p: p["page"]}

    run = await bench.carry_out(text, {"items": [3, 1, 2]}, handlers)

    assert run["output"] == {"counts": ["page 3", "page 1", "page 2"], "leaked": False}


async def test_nested_fan_out_with_isolated_branch_data(bench: Bench) -> None:
    text = """
name: nested
initial_node: a
nodes:
  a: {}
  outer: {output: {state.mine: branch.index}}
  inner: {task: work, input: {outer: branch.parent.index, inner: branch.index, mine: state.mine}}
  inner_end: {task: sum, input: {parts: state.parts}, output: {state.total: result}}
  outer_end: {}
transitions:
  - {id: outer, from: a, to: outer, spawn_count: 2}
  - {id: inner, from: outer, to: inner, spawn_count: 3}
  - from: inner
    to: inner_end
    synchronization: {joins_transition: inner, merge: {target: state.parts, strategy: collect}}
  - from: inner_end
    to: outer_end
    synchronization: {joins_transition: outer, merge: {source: state.total, target: state.totals}}
output: {totals: state.totals, leaked: has(state.mine) || has(state.parts)}
"""
    handlers = {
        "work": lambda p: 10 * p["outer"] + p["inner"] if p["mine"] == p["outer"] else -1000,
        "sum": lambda p: sum(p["parts"]),
    }

    run = await bench.carry_out(text, {}, handlers)

    assert run["output"] == {"totals": [3, 33], "leaked": False}
    paths = [token["path_id"] for token in await bench.tokens(run["id"])]
    assert "root.a.1.outer.2" in paths


async def test_a_loop_round_a_fan_out(bench: Bench) -> None:
    text = """
name: refine
initial_node: draft
nodes:
  draft: {task: draft, input: {marks: "has(state.marks) ? state.marks : []"}}
  judge: {task: judge, input: {draft: nodes.draft.result, i: branch.index}}
  sum: {task: sum, input: {marks: state.marks}, output: {state.best: result}}
  done: {output: {output.best: state.best}}
transitions:
  - {id: panel, from: draft, to: judge, spawn_count: 2}
  - from: judge
    to: sum
    synchronization:
      joins_transition: panel
      merge: {target: state.marks, strategy: collect}
  - {id: again, from: sum, to: draft, condition: state.best < 3, max_iterations: 5}
  - {from: sum, to: done, condition: state.best >= 3}
"""
    handlers = {
        "draft": lambda p: len(p["marks"]) and max(p["marks"]) + 1,
        "judge": lambda p: p["draft"],
        "sum": lambda p: max(p["marks"]),
    }

    run = await bench.carry_out(text, {}, handlers)
    graph = (await bench.api.get(f"/api/runs/{run['id']}/graph")).json()

    assert (run["state"], run["output"]) == ("completed", {"best": 3})
    joins = [one["join"] for one in graph["transitions"] if one["join"] is not None]
    assert joins == [
        {
            "arrived": 8,
            "needed": 8,
            "scopes": 4,
            "fired": 4,
            "cancelled": 0,
            "failed": 0,
            "open_scopes": [],
        }
    ]
    assert {one["id"]: one["taken"] for one in graph["transitions"]}["again"] == 3


TIMED = """
name: timed
initial_node: a
nodes:
  a: {}
  work: {task: work, input: {n: branch.item}}
  end: {}
transitions:
  - {id: fan, from: a, to: work, foreach: input.items}
  - from: work
    to: end
    synchronization:
      joins_transition: fan
      merge: {target: state.done}
      timeout_ms: 1000
      on_timeout: proceed
output: {done: state.done}
"""


async def test_a_join_time_out_that_proceeds(bench: Bench) -> None:
    slow = {"work": lambda p: HOLD if p["n"] == 2 else p["n"]}
    before = await bench.carry_out(TIMED, {"items": [1, 2, 3]}, slow)

    await bench.api.turn(1_000)
    after = await bench.run(before["id"])
    late = await bench.worker.finish(bench.kept[0], 2)

    assert before["state"] == "running"
    assert (after["state"], after["output"]) == ("completed", {"done": [1, 3]})
    assert late == "stale"
    assert await bench.run(before["id"]) == after


async def test_a_join_time_out_that_fails(bench: Bench) -> None:
    text = TIMED.replace("proceed", "fail")
    before = await bench.carry_out(text, {"items": [1, 2]}, {"work": lambda _: HOLD})

    await bench.api.turn(1_000)
    after = await bench.run(before["id"])

    assert (after["state"], after["error"]["type"]) == ("failed", "join_timeout")


QUORUM = """
name: quorum
initial_node: a
nodes:
  a: {}
  judge: {task: judge, input: {n: branch.index}, retry: {max_attempts: 1}}
  tally: {task: tally, input: {verdicts: state.verdicts}, output: {output.r: result}}
transitions:
  - {id: fan, from: a, to: judge, spawn_count: 3}
  - from: judge
    to: tally
    synchronization:
      wait_for: {m_of_n: 2}
      joins_transition: fan
      merge: {target: state.verdicts}
      late: LATE
      on_branch_failure: FAILURE
"""


@pytest.mark.parametrize("late", ["cancel", "absorb"])
async def test_a_late_error_after_a_quorum_changes_nothing(bench: Bench, late: str) -> None:
    text = QUORUM.replace("LATE", late).replace("FAILURE", "fail")
    handlers = {"judge": lambda p: HOLD if p["n"] == 1 else p["n"], "tally": lambda _: HOLD}
    run = await bench.carry_out(text, {}, handlers)
    leases = {lease["name"]: lease for lease in bench.kept}

    told = await bench.worker.fail(leases["judge"], {"type": "Broken", "retryable": False})
    await bench.worker.finish(leases["tally"], "fine")
    after = await bench.run(run["id"])

    assert told == ("stale" if late == "cancel" else "accepted")
    assert (after["state"], after["output"]) == ("completed", {"r": "fine"})
    assert after["context"]["state"] == {"verdicts": [0, 2]}


async def test_a_result_and_an_error_of_siblings_in_one_report(bench: Bench) -> None:
    """The one fires the join that no longer wants the other's next attempt."""
    text = QUORUM.replace("LATE", "cancel").replace("FAILURE", "fail")
    text = text.replace("max_attempts: 1", "max_attempts: 5").replace("m_of_n: 2", "m_of_n: 1")
    run = await bench.carry_out(text, {}, {"judge": lambda _: HOLD})
    first, second, third = bench.kept

    answer = await bench.worker.report(
        {**held(first), "ok": False, "error": "again"},
        {**held(second), "ok": True, "result": "mine"},
        {**held(third), "ok": True, "result": "too late"},
    )
    await bench.drive({"tally": echo})
    after = await bench.run(run["id"])

    assert answer.status_code == 200, answer.text
    assert (after["state"], after["output"]) == ("completed", {"r": {"verdicts": ["mine"]}})
    assert (await bench.api.task(first["task_id"]))["state"] == "cancelled"
    assert await bench.items("/api/tasks?state=queued,scheduled,running") == []


async def test_a_branch_that_ends_before_its_join(bench: Bench) -> None:
    text = """
name: early
initial_node: a
nodes:
  a: {}
  work: {task: work, input: {n: branch.item}}
  more: {task: work, input: {n: branch.item}}
  end: {}
transitions:
  - {id: fan, from: a, to: work, foreach: input.items}
  - {from: work, to: more, condition: branch.item > 1}
  - from: more
    to: end
    synchronization: {joins_transition: fan, merge: {source: branch.item, target: state.done}}
output: {done: state.done}
"""
    run = await bench.carry_out(text, {"items": [1, 2, 3]}, {"work": echo})

    assert (run["state"], run["output"]) == ("completed", {"done": [2, 3]})


async def test_an_unreachable_quorum_fails_at_once(bench: Bench) -> None:
    def judge(payload: Any) -> Any:
        if payload["n"] < 2:
            raise Broken("no")
        return HOLD

    text = QUORUM.replace("LATE", "cancel").replace("FAILURE", "continue")
    run = await bench.carry_out(text, {}, {"judge": judge})
    late = await bench.worker.finish(bench.kept[0], 1)

    assert (run["state"], run["error"]["type"]) == ("failed", "quorum_unreachable")
    assert late == "stale"


async def test_sub_workflows_inside_a_fan_out_with_losers_cancelled(bench: Bench) -> None:
    await bench.put("""
name: runner
initial_node: lap
nodes: {lap: {task: lap, input: {n: input.n}, output: {output.n: result}}}
""")
    text = """
name: race
initial_node: a
nodes:
  a: {}
  runner: {workflow: runner, input: {n: branch.index}}
  end: {}
transitions:
  - {id: fan, from: a, to: runner, spawn_count: 3}
  - from: runner
    to: end
    synchronization:
      wait_for: any
      joins_transition: fan
      merge: {source: branch.output.n, target: output.winner, strategy: last_wins}
"""
    await bench.put(text)
    run_id = await bench.start("race")
    waiting = await bench.tokens(run_id)
    await bench.drive({"lap": lambda p: p["n"] if p["n"] == 1 else HOLD})
    run = await bench.run(run_id)
    children = await bench.items("/api/runs?workflow=runner")

    assert [token["state"] for token in waiting[1:]] == ["waiting_for_subworkflow"] * 3
    assert {token["child_run_id"] for token in waiting[1:]} == {child["id"] for child in children}
    assert (run["state"], run["output"]) == ("completed", {"winner": 1})
    assert sorted(child["state"] for child in children) == ["cancelled", "cancelled", "completed"]
    assert {child["parent_run_id"] for child in children} == {run_id}
    assert {child["parent_token_id"] for child in children} == {one["id"] for one in waiting[1:]}
    assert [await bench.worker.finish(lease, 0) for lease in bench.kept] == ["stale", "stale"]


async def test_a_sub_workflow_that_does_not_exist_fails_the_run(bench: Bench) -> None:
    run = await bench.carry_out(
        "name: lost\ninitial_node: a\nnodes: {a: {workflow: nobody}}", {}, {}
    )

    assert (run["state"], run["error"]["type"]) == ("failed", "sub_workflow")


async def test_the_time_limit_of_a_node_is_that_of_its_sub_workflow(bench: Bench) -> None:
    await bench.put("name: sleeper\ninitial_node: a\nnodes: {a: {wait_for: {event: never}}}")
    run = await bench.carry_out(
        "name: patient\ninitial_node: a\nnodes: {a: {workflow: sleeper, timeout_ms: 1000}}", {}, {}
    )

    await bench.api.turn(1_000)
    (child,) = await bench.items("/api/runs?workflow=sleeper")
    after = await bench.run(run["id"])

    assert (child["state"], after["state"]) == ("timed_out", "failed")
    assert after["error"]["type"] == "timeout"


async def test_an_empty_list_is_joined_at_once(bench: Bench) -> None:
    run = await bench.carry_out(TIMED, {"items": []}, {})

    assert (run["state"], run["output"]) == ("completed", {"done": []})


async def test_a_failing_condition_fails_the_run_with_its_place(bench: Bench) -> None:
    text = """
name: torn
initial_node: a
nodes: {a: {}, b: {}}
transitions:
  - {id: step, from: a, to: b, condition: input.missing > 1}
"""
    run = await bench.carry_out(text, {}, {})

    assert (run["state"], run["error"]["type"]) == ("failed", "condition_failed")
    assert "step.condition" in str(run["error"])


async def test_an_output_that_breaks_its_schema_fails_the_run(bench: Bench) -> None:
    text = """
name: strict
initial_node: a
nodes: {a: {task: work, output_schema: {type: integer}}}
"""
    run = await bench.carry_out(text, {}, {"work": lambda _: "text"})

    assert (run["state"], run["error"]["type"]) == ("failed", "output_invalid")
    assert "nodes.a.output_schema" in str(run["error"])


async def test_a_result_that_no_machine_can_read_fails_its_node(bench: Bench) -> None:
    text = "name: odd\ninitial_node: a\nnodes: {a: {task: work}}"
    run = await bench.carry_out(text, {}, {"work": lambda _: HOLD})
    lease, worker = bench.kept[0], bench.worker
    report = (
        f'{{"incarnation": {worker.incarnation}, "results": [{{"task_id": "{lease["task_id"]}", '
        f'"fence": {lease["fence"]}, "ok": true, "result": 1e400}}]}}'
    )

    answer = await bench.api.client.post(f"/api/workers/{worker.id}/results", content=report)
    after = await bench.run(run["id"])

    assert answer.status_code == 200
    assert (after["state"], after["error"]["type"]) == ("failed", "result_unreadable")
    assert await bench.run(run["id"]) == after


async def test_a_task_cancelled_by_hand_fails_its_run(bench: Bench) -> None:
    text = "name: plain\ninitial_node: a\nnodes: {a: {task: work}}"
    await bench.put(text)
    run_id = await bench.start("plain")
    (before,) = await bench.tokens(run_id)

    await bench.api.post(f"/api/tasks/{before['task_id']}/cancel")
    (after,) = await bench.tokens(run_id)
    run = await bench.run(run_id)

    assert (before["state"], after["state"]) == ("dispatched", "cancelled")
    assert (run["state"], run["error"]["type"]) == ("failed", "cancelled")


async def test_values_come_back_as_they_went_in(bench: Bench) -> None:
    text = """
name: values
initial_node: a
nodes: {a: {task: work, input: {v: input.v}, output: {output.v: result.v}}}
"""
    value: dict[str, Any] = {
        "big": 12345678901234567890123,
        "float": 1.0,
        "none": None,
        "text": "ä\x00",
        "l": [],
    }

    run = await bench.carry_out(text, {"v": value}, {"work": echo})

    assert run["state"] == "completed", run["error"]
    assert run["output"] == {"v": value}
    assert isinstance(run["output"]["v"]["float"], float)
