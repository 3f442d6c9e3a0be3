"""Sessions: who they are, who hears what, and what is kept for those who are away."""

from pathlib import Path

import pytest

from tests.gateways.serving import Api, served
from tests.gateways.websocket.talking import Peer, peer


async def told(client: Peer, count: int) -> list[str]:
    """The tasks whose ends are pushed next, in order."""
    return [(await client.pushed("TaskCompleted"))["payload"]["taskId"] for _ in range(count)]


async def do(worker: Peer, *task_ids: str) -> None:
    """Do tasks in this order; the worker is given one at a time."""
    for task_id in task_ids:
        assert (await worker.given())["taskId"] == task_id
        await worker.complete(task_id, "w", result=task_id.upper())


# --- who is who ---------------------------------------------------------------------------------


async def test_the_same_name_is_always_the_same_session(api: Api, alice: Peer, bob: Peer) -> None:
    async with peer(api, "alice") as again, peer(api) as one, peer(api) as other:
        ids = [again.session_id, bob.session_id, one.session_id, other.session_id]

    assert ids[0] == alice.session_id
    assert len(set(ids)) == 4


async def test_a_session_has_the_same_id_on_every_coordinator(alice: Peer) -> None:
    assert alice.session_id == "b4b74060eea81ae2f0f703374c2bf0d8bc233bea84d5fa9b384c04229e8423cd"


async def test_a_reply_goes_only_to_the_socket_that_asked(api: Api, alice: Peer) -> None:
    async with peer(api, "alice") as other:
        await alice.ask("get_status")

        assert await other.quiet() == []


# --- who hears of an end ------------------------------------------------------------------------


async def test_all_sockets_of_a_session_hear_of_an_end_and_nobody_else(
    api: Api, alice: Peer, bob: Peer
) -> None:
    async with peer(api, "alice") as other:
        await bob.register("w")
        await alice.assign("t")
        await do(bob, "t")

        assert await told(alice, 1) == await told(other, 1) == ["t"]
        assert [frame["type"] for frame in await bob.quiet()] == []


async def test_whoever_asked_for_a_task_hears_of_its_end(alice: Peer, bob: Peer) -> None:
    first = await alice.assign("t")
    second = await bob.assign({"taskId": "t", "payload": "another"})

    await alice.register("w")
    await do(alice, "t")

    assert (first["status"], second["status"]) == ("queued", "queued")
    assert second["duplicate"] is True
    assert await told(alice, 1) == await told(bob, 1) == ["t"]


async def test_the_same_task_never_runs_twice(alice: Peer, bob: Peer) -> None:
    await bob.register("w")
    stands = [await alice.assign("t")]
    stands.append(await alice.assign("t"))
    await do(bob, "t")
    stands.append(await alice.assign("t"))

    assert stands == [
        {"status": "assigned", "taskId": "t", "workerId": "w"},
        {"status": "assigned", "taskId": "t", "workerId": "w", "duplicate": True},
        {
            "status": "completed",
            "taskId": "t",
            "workerId": "w",
            "duplicate": True,
            "result": "T",
        },
    ]
    assert await bob.quiet() == []


async def test_a_task_that_was_cancelled_has_failed_for_its_session(api: Api, alice: Peer) -> None:
    await alice.assign("t")

    await api.post("/api/tasks/cancel", {"queue": "main"})

    payload = (await alice.pushed("TaskFailed"))["payload"]
    assert (payload["taskId"], payload["error"]["type"]) == ("t", "cancelled")
    assert (await alice.assign("t"))["status"] == "cancelled"


async def test_a_task_that_is_sent_round_again_is_told_of_again(api: Api, alice: Peer) -> None:
    await alice.assign("t")
    await api.post("/api/tasks/cancel", {"queue": "main"})
    await alice.pushed("TaskFailed")

    await api.post("/api/tasks/retry", {"queue": "main", "state": "cancelled"})
    await alice.register("w")
    await do(alice, "t")

    assert await told(alice, 1) == ["t"]


async def test_a_task_that_came_over_http_is_called_by_its_own_id(api: Api, alice: Peer) -> None:
    submitted = await api.submit(queue="main", payload=[1])

    await alice.register("w")
    given = await alice.given()
    completed = await alice.complete(submitted["id"], "w", result=2)

    assert (given["taskId"], given["payload"]) == (submitted["id"], [1])
    assert completed == {"status": "completed", "taskId": submitted["id"]}
    assert (await api.task(submitted["id"]))["result"] == 2


# --- who was away -------------------------------------------------------------------------------


async def test_a_session_that_was_away_is_told_in_order_and_once(api: Api, bob: Peer) -> None:
    names = [f"t{number}" for number in range(30)]
    async with peer(api, "away") as gone:
        for name in names:
            await gone.assign(name)
    await bob.register("w")
    await do(bob, *names)

    async with peer(api, "away") as back:
        heard = await told(back, len(names))
        await bob.assign("later")
        await do(bob, "later")
        await told(bob, 1)
    async with peer(api, "away") as once_more:
        silence = await once_more.quiet()

    assert heard == names
    assert silence == []


@pytest.mark.slow
async def test_what_is_to_be_told_outlives_the_coordinator(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        async with peer(api, "away") as gone:
            await gone.assign({"taskId": "t", "payload": {"n": 1}})
            await gone.assign("u")
        async with peer(api) as worker:
            await worker.register("w")
            await do(worker, "t")
            await worker.given()

    async with served(tmp_path) as api, peer(api, "away") as back:
        heard = [await back.pushed("TaskCompleted")]
        async with peer(api) as worker:
            assert (await worker.register("w"))["holding"] == ["u"]
            await worker.complete("u", "w", result="U")
        heard.append(await back.pushed("TaskCompleted"))

    assert [frame["payload"] for frame in heard] == [
        {"taskId": "t", "result": "T"},
        {"taskId": "u", "result": "U"},
    ]


@pytest.mark.slow
async def test_large_results_do_not_make_a_reader_look_slow(api: Api, bob: Peer) -> None:
    large = "x" * 3_000_000
    async with peer(api, "away") as gone:
        for number in range(25):
            await gone.assign(f"t{number}")
    await bob.register("w")
    for number in range(25):
        await bob.given()
        await bob.complete(f"t{number}", "w", result=large)

    async with peer(api, "away", max_size=None) as back:
        heard = [(await back.pushed("TaskCompleted"))["payload"] for _ in range(25)]

    assert [one["taskId"] for one in heard] == [f"t{number}" for number in range(25)]
    assert all(one["result"] == large for one in heard)


async def test_a_task_forgotten_with_history_is_no_news(api: Api) -> None:
    async with peer(api, "away") as gone, peer(api) as worker:
        await gone.assign("t")
    async with peer(api) as worker:
        await worker.register("w")
        await do(worker, "t")

    await api.turn(8 * 24 * 3_600_000)

    async with peer(api, "away") as back:
        assert await back.quiet() == []
        assert (await back.assign("t"))["status"] == "queued"
