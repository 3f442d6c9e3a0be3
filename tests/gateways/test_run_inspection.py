"""Runs looked into: as they were, and page by page however many branches they have."""

import pytest

from tests.gateways.serving import Api, Json
from tests.gateways.test_runs import PANEL
from tests.gateways.working import Bench

JUDGES = ["a", "b", "c", "d"]


@pytest.fixture
async def bench(api: Api) -> Bench:
    return await Bench.at(api)


async def begun(bench: Bench) -> str:
    """A run whose four judges are asked, one of whom has answered and one is at it."""
    await bench.put(PANEL)
    run_id = await bench.start("panel", {"judges": JUDGES})
    (ask,) = await bench.worker.lease()
    await bench.worker.finish(ask)
    leases = await bench.worker.lease(2)
    await bench.worker.finish(leases[0], "yes")
    return run_id


async def look(bench: Bench, run_id: str, what: str) -> Json:
    answer = await bench.api.get(f"/api/runs/{run_id}/{what}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def tokens_of(graph: Json) -> dict[str, Json]:
    return {node["id"]: node["tokens"] for node in graph["nodes"]}


async def test_a_graph_can_be_had_as_it_was_after_any_entry(bench: Bench) -> None:
    run_id = await begun(bench)

    first = await look(bench, run_id, "graph?at=1")
    second = await look(bench, run_id, "graph?at=2")
    again = await look(bench, run_id, "graph?at=1")
    now = await look(bench, run_id, "graph")

    assert tokens_of(first) == {"ask": {"dispatched": 1}, "judge": {}, "tally": {}}
    assert tokens_of(second)["judge"] == {"dispatched": 4}
    assert again == first
    assert (first["number"], first["last_number"], first["state"]) == (1, 3, "running")
    assert tokens_of(now)["judge"] == {"waiting_for_siblings": 1, "executing": 1, "dispatched": 2}
    assert (now["number"], now["last_number"]) == (3, 3)


async def test_a_moment_that_has_not_come_is_now(bench: Bench) -> None:
    run_id = await begun(bench)

    assert await look(bench, run_id, "graph?at=99") == await look(bench, run_id, "graph")


async def test_a_look_sees_what_happened_since_the_last_one(bench: Bench) -> None:
    run_id = await begun(bench)
    before = await look(bench, run_id, "graph")

    (lease, *_) = await bench.worker.lease(1)
    during = await look(bench, run_id, "graph")
    await bench.worker.finish(lease, "no")
    after = await look(bench, run_id, "graph")

    assert tokens_of(before)["judge"]["executing"] == 1
    assert tokens_of(during)["judge"]["executing"] == 2
    assert tokens_of(after)["judge"]["waiting_for_siblings"] == 2
    assert after["last_number"] == before["last_number"] + 1


async def test_a_node_tells_when_it_was_first_come_to_and_last_done_with(bench: Bench) -> None:
    run_id = await begun(bench)

    nodes = {node["id"]: node for node in (await look(bench, run_id, "graph"))["nodes"]}

    now_ms = bench.api.clock.now_ms()
    assert (nodes["ask"]["first_at_ms"], nodes["ask"]["last_at_ms"]) == (now_ms, now_ms)
    assert (nodes["judge"]["first_at_ms"], nodes["judge"]["last_at_ms"]) == (now_ms, None)
    assert (nodes["tally"]["first_at_ms"], nodes["tally"]["last_at_ms"]) == (None, None)


async def test_tokens_can_be_had_of_one_node_in_one_state(bench: Bench) -> None:
    run_id = await begun(bench)

    waiting = await look(bench, run_id, "tokens?node=judge&state=dispatched&limit=1")
    rest = await look(
        bench,
        run_id,
        f"tokens?node=judge&state=dispatched&limit=1&cursor={waiting['next_cursor']}",
    )

    shown = [*waiting["items"], *rest["items"]]
    assert [(one["node_id"], one["state"]) for one in shown] == [("judge", "dispatched")] * 2
    assert [one["branch_index"] for one in shown] == [2, 3]
    assert rest["next_cursor"] is None


async def test_a_few_tokens_of_each_node_stand_for_all(bench: Bench) -> None:
    run_id = await begun(bench)

    page = await look(bench, run_id, "tokens?per_node=2")

    assert [one["node_id"] for one in page["items"]] == ["ask", "judge", "judge"]


async def test_a_token_tells_who_works_for_it_since_when_and_what_came_to_nothing(
    bench: Bench,
) -> None:
    await bench.put(PANEL)
    run_id = await bench.start("panel", {"judges": JUDGES})
    (lease,) = await bench.worker.lease()
    await bench.worker.fail(lease)
    failed_at_ms = bench.api.clock.now_ms()

    ((token),) = (await look(bench, run_id, "tokens"))["items"]

    assert token["attempts"] == [
        {"started_at_ms": failed_at_ms, "ended_at_ms": failed_at_ms, "ending": "failed"}
    ]
    assert (token["started_at_ms"], token["worker_id"]) == (None, None)


async def test_a_journal_can_leave_out_most_of_what_a_fan_out_decides(bench: Bench) -> None:
    run_id = await begun(bench)

    whole = (await look(bench, run_id, "journal"))["items"][1]
    short = (await look(bench, run_id, "journal?decisions=2"))["items"][1]

    assert short["decisions"] == whole["decisions"][:2]
    assert short["decision_count"] == whole["decision_count"] == len(whole["decisions"]) > 10
    assert len(short["links"]) <= 2
