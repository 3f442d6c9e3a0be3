"""Workers that stream: credits up, leases down, results up, beats and cancellations between."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota.core.ids import to_text
from rota.gateways.websocket import connection
from tests.gateways.serving import Api
from tests.gateways.websocket.streaming import StreamPeer, number_of, numbers, streaming_peer
from tests.gateways.websocket.talking import Peer, turn, until

LEASE_MS = 15_000


@pytest.fixture
async def worker(api: Api) -> AsyncIterator[StreamPeer]:
    async with streaming_peer(api) as one:
        yield one


async def parked(api: Api, number: int) -> None:
    """Wait until so many calls for work wait at the coordinator."""
    await until(lambda: api.node.coordinator.metrics().waiting_leases == number)


# --- getting work -------------------------------------------------------------------------------


async def test_a_stream_registers_its_worker_and_says_on_which_terms(
    api: Api, worker: StreamPeer
) -> None:
    opened = await worker.open("w", heartbeat_interval_ms=1_000, capabilities=["gpu"])

    registered = (await api.get("/api/workers/w")).json()
    assert opened["worker_id"] == "w"
    assert opened["incarnation"] == registered["incarnation"]
    assert (opened["heartbeat_interval_ms"], opened["lease_ms"]) == (1_000, 3_000)
    assert opened["max_frame_bytes"] == api.node.settings.max_frame_bytes
    assert registered["capabilities"] == ["gpu"]


async def test_nothing_is_pushed_before_there_is_room(api: Api, worker: StreamPeer) -> None:
    await api.submit()
    await worker.open()

    before = await worker.quiet()
    await worker.credit(1)

    assert before == []
    assert len(await worker.leases()) == 1


async def test_work_is_pushed_in_one_batch_as_far_as_there_is_room(
    api: Api, worker: StreamPeer
) -> None:
    tasks = [await api.submit(payload={"n": number}) for number in range(5)]
    await worker.open()

    await worker.credit(3)
    leases = await worker.leases()

    assert [lease[:4] for lease in leases] == [
        [number, 1, "work", b'{"n":%d}' % place] for place, number in enumerate(numbers(*tasks)[:3])
    ]
    assert await worker.quiet() == []


async def test_a_lease_carries_what_its_task_has(api: Api, worker: StreamPeer) -> None:
    task = await api.submit(
        queue="q", priority=7, max_attempts=5, timeout_ms=1_000, key="k", labels=["a"]
    )
    await worker.open()

    await worker.credit(1)
    ((lease,),) = [await worker.leases()]

    now_ms = api.clock.now_ms()
    assert lease == [
        number_of(task["id"]),
        1,
        "work",
        b"null",
        1,
        5,
        "q",
        7,
        now_ms,
        now_ms + 1_000,
        1_000,
        "k",
        ["a"],
        None,
    ]


async def test_what_is_on_its_way_takes_up_room_too(api: Api, worker: StreamPeer) -> None:
    for _ in range(5):
        await api.submit()
    await worker.open()

    await worker.say("stream_credit", payload={"free": 2, "taken": 0})
    await worker.leases()
    # Said before the leases arrived: it does not mean two more.
    await worker.say("stream_credit", payload={"free": 2, "taken": 0})
    between = await worker.quiet()
    await worker.say("stream_credit", payload={"free": 2, "taken": 2})

    assert between == []
    assert len(await worker.leases()) == 2


async def test_a_task_reaches_a_waiting_stream_with_the_commit_that_accepts_it(
    api: Api, worker: StreamPeer
) -> None:
    await worker.open()
    await worker.credit(10)
    await parked(api, 1)

    task = await api.submit()

    ((lease,),) = [await worker.leases()]
    assert lease[0] == number_of(task["id"])
    assert (await api.task(task["id"]))["state"] == "running"


async def test_capacity_is_never_overshot_whatever_the_credit(api: Api, worker: StreamPeer) -> None:
    for _ in range(5):
        await api.submit()
    await worker.open(max_concurrent_tasks=2)

    await worker.credit(100)

    assert len(await worker.leases()) == 2
    assert await worker.quiet() == []


async def test_among_streams_that_wait_the_best_gets_the_work(api: Api) -> None:
    async with streaming_peer(api) as full, streaming_peer(api) as empty:
        await full.open("a-full", max_concurrent_tasks=2)
        await full.credit(2)
        await parked(api, 1)
        await api.submit()
        await full.leases()
        await empty.open("b-empty", max_concurrent_tasks=2)
        await empty.credit(2)
        await parked(api, 2)

        await api.submit()

        assert len(await empty.leases()) == 1
        assert await full.quiet() == []


async def test_large_payloads_come_in_several_frames_and_none_is_lost(
    api: Api, worker: StreamPeer
) -> None:
    tasks = [await api.submit(payload="x" * 700_000) for _ in range(3)]
    await worker.open()

    await worker.credit(3)
    frames = [await worker.leases() for _ in range(3)]

    assert [len(frame) for frame in frames] == [1, 1, 1]
    assert [frame[0][0] for frame in frames] == numbers(*tasks)


# --- reporting ----------------------------------------------------------------------------------


async def test_results_are_answered_when_they_are_committed_and_only_refusals_are_named(
    api: Api, worker: StreamPeer
) -> None:
    for _ in range(3):
        await api.submit()
    await worker.open()
    await worker.credit(3)
    first, second, third = await worker.leases()

    noted = await worker.report(
        first[:2], [*second[:2], True, b'{"a": 1}'], [third[0], 99], [12_345, 1]
    )
    again = await worker.report(first[:2])

    assert noted == {"count": 4, "refused": [[third[0], "stale"], [12_345, "unknown"]]}
    assert again == {"count": 1, "refused": [[first[0], "duplicate"]]}
    done = [await api.task(to_text(lease[0])) for lease in (first, second, third)]
    assert [(task["state"], task["result"]) for task in done] == [
        ("succeeded", None),
        ("succeeded", {"a": 1}),
        ("running", None),
    ]


async def test_failures_and_snoozes_are_reported_too(api: Api, worker: StreamPeer) -> None:
    for _ in range(3):
        await api.submit()
    await worker.open()
    await worker.credit(3)
    failing, hopeless, sleepy = await worker.leases()
    error = {"type": "ValueError", "message": "no", "details": {"line": 3}}

    noted = await worker.report(
        [*failing[:2], False, None, error, 5_000],
        [*hopeless[:2], False, None, {**error, "retryable": False}],
        [*sleepy[:2], False, None, None, None, 60_000],
    )

    assert noted == {"count": 3, "refused": []}
    again, ended, snoozed = [
        await api.task(to_text(lease[0])) for lease in (failing, hopeless, sleepy)
    ]
    now_ms = api.clock.now_ms()
    assert (again["state"], again["run_at_ms"]) == ("scheduled", now_ms + 5_000)
    assert (ended["state"], ended["error"]["details"]) == ("failed", {"line": 3})
    assert (snoozed["state"], snoozed["attempt"]) == ("scheduled", 0)


async def test_a_streaming_worker_closes_a_rate(api: Api, worker: StreamPeer) -> None:
    await api.submit(rate={"key": "openai", "limit": 10})
    await worker.open()
    await worker.credit(1)
    (lease,) = await worker.leases()

    await worker.report([*lease[:2], False, None, None, None, 60_000, None, True])

    limit = (await api.get("/api/limits/openai")).json()
    assert limit["opens_at_ms"] == api.clock.now_ms() + 60_000


async def test_room_that_results_make_is_filled_by_the_same_commit(
    api: Api, worker: StreamPeer
) -> None:
    for _ in range(2):
        await api.submit()
    await worker.open(max_concurrent_tasks=1)
    await worker.credit(1)
    ((lease,),) = [await worker.leases()]
    before = api.node.coordinator.metrics().batches

    await worker.report(lease[:2], free=1)
    await worker.leases()

    assert api.node.coordinator.metrics().batches == before + 1


@pytest.mark.parametrize(
    ("result", "field"),
    [
        ([True, b"{"], "result"),
        ([True, b'"\xff"'], "result"),
        ([True, b"[" * 100 + b"]" * 100], "result"),
        ([True, None, {"message": "x"}], "error"),
        ([True, None, None, None, 5], "snooze_ms"),
        ([False, b"1"], "result"),
        ([False, None, None, None, None, None, True], "rate_limited"),
    ],
)
async def test_a_result_that_nobody_could_read_spoils_its_report_and_nothing_else(
    api: Api, worker: StreamPeer, result: list[Any], field: str
) -> None:
    await api.submit()
    await worker.open()
    await worker.credit(1)
    ((lease,),) = [await worker.leases()]

    refused = await worker.report([*lease[:2], *result])
    noted = await worker.report(lease[:2])

    assert refused["code"] == "invalid"
    assert field in refused["error"]
    assert noted["refused"] == []


async def test_progress_is_kept_and_stale_progress_refused(api: Api, worker: StreamPeer) -> None:
    task = await api.submit()
    await worker.open()
    await worker.credit(1)
    ((lease,),) = [await worker.leases()]

    items = [[*lease[:2], b"0.5", b'{"so": "far"}'], [lease[0], 9, b"1"]]
    noted = await worker.ask("stream_progress", payload={"items": items})

    seen = await api.task(task["id"])
    assert noted == {"count": 2, "refused": [[lease[0], "stale"]]}
    assert (seen["progress"], seen["partial"]) == (0.5, {"so": "far"})


async def test_log_lines_are_kept_and_stale_ones_refused(api: Api, worker: StreamPeer) -> None:
    task = await api.submit()
    await worker.open()
    await worker.credit(1)
    ((lease,),) = [await worker.leases()]

    lines = [[5, "info", "shop", "paid", b'{"n": 1}'], [6, "error", "shop", "refused"]]
    items = [[*lease[:2], lines, 1, 4], [lease[0], 9, [[7, "info", "", "stale"]]]]
    noted = await worker.ask("stream_logs", payload={"items": items})

    assert noted == {"count": 2, "refused": [[lease[0], "stale"]]}
    page = (await api.get(f"/api/tasks/{task['id']}/logs")).json()
    assert [(one["message"], one["fields"]) for one in page["items"]] == [
        ("paid", {"n": 1}),
        ("refused", None),
    ]
    assert [one["dropped"] for one in page["attempts"]] == [4]


@pytest.mark.parametrize(
    "line",
    [
        [5, "info", "shop", "paid", b"[1]"],
        [5, "info", "shop", "paid", b"{"],
        [5, "info", "shop", "paid", b'{"a": "\xff"}'],
        [5, "loud", "shop", "paid"],
        [-1, "info", "shop", "paid"],
        [5, "info", "shop", 3],
    ],
)
async def test_log_lines_that_are_none_are_refused(
    api: Api, worker: StreamPeer, line: list[Any]
) -> None:
    await api.submit()
    await worker.open()
    await worker.credit(1)
    ((lease,),) = [await worker.leases()]

    refused = await worker.ask("stream_logs", payload={"items": [[*lease[:2], [line]]]})
    noted = await worker.ask("stream_logs", payload={"items": [[*lease[:2], []]]})

    assert refused["code"] == "invalid"
    assert noted == {"count": 1, "refused": []}


# --- living and dying ---------------------------------------------------------------------------


async def test_a_stream_that_beats_lives_and_one_that_is_only_open_does_not(api: Api) -> None:
    async with streaming_peer(api) as lively, streaming_peer(api) as silent:
        await lively.open("lively")
        await silent.open("silent")
        await silent.credit(1)

        for _ in range(LEASE_MS // 1_000 + 2):
            await turn(api, 1_000)
            await lively.beat()

        assert (await api.get("/api/workers/lively")).json()["health"] == "healthy"
        assert (await api.get("/api/workers/silent")).status_code == 404
        assert (await silent.beat())["code"] == "worker_not_found"
        assert (await silent.pushed("stream_ended"))["payload"]["code"] == "worker_not_found"


async def test_heartbeats_that_come_together_are_one_commit(api: Api) -> None:
    """Two frames that are sent together may arrive in two rounds of the loop, so a few are sent."""
    metrics = api.node.coordinator.metrics()
    async with streaming_peer(api) as first, streaming_peer(api) as second:
        await first.open("first")
        await second.open("second")
        await api.node.coordinator.leading.duties.stop()  # they commit batches of their own
        commits: list[int] = []
        while 1 not in commits and len(commits) < 20:
            before = metrics.batches
            await asyncio.gather(first.beat(), second.beat())
            commits.append(metrics.batches - before)

    assert commits[-1] == 1


async def test_a_cancelled_task_is_told_to_its_stream_at_once(api: Api, worker: StreamPeer) -> None:
    task = await api.submit()
    await worker.open()
    await worker.credit(1)
    ((lease,),) = [await worker.leases()]

    await api.post(f"/api/tasks/{task['id']}/cancel")
    told = await worker.pushed("stream_cancel")

    assert told["payload"] == {"task_ids": [lease[0]]}
    assert (await worker.beat(lease[0]))["cancel"] == [lease[0]]
    assert (await worker.report(lease[:2]))["refused"] == [[lease[0], "stale"]]


async def test_a_worker_resumes_over_another_socket_and_keeps_what_it_runs(api: Api) -> None:
    async with streaming_peer(api) as before:
        for _ in range(3):
            await api.submit()
        opened = await before.open()
        await before.credit(3)
        kept, lost, other = await before.leases()

        async with streaming_peer(api) as after:
            resume = {"worker_id": "w", "incarnation": opened["incarnation"]}
            resumed = await after.ask(
                "stream_resume", payload={**resume, "running": [kept[0], other[0]]}
            )
            # What never reached it goes back, and without using up an attempt comes again.
            await after.credit(1)
            ((again,),) = [await after.leases()]
            noted = await after.report(kept[:2], again[:2])

        assert resumed["incarnation"] == opened["incarnation"]
        assert (again[0], again[1], again[4]) == (lost[0], 2, 1)
        assert noted["refused"] == []
        assert await before.quiet() == []


async def test_what_was_granted_to_a_socket_that_has_gone_goes_to_another_worker(
    api: Api,
) -> None:
    async with streaming_peer(api) as gone:
        await gone.open("gone")
        await gone.credit(10)
        await parked(api, 1)
        await gone.socket.close()
        await until(lambda: not api.node.sockets.open_sockets)

        await api.submit()
        async with streaming_peer(api) as heir:
            await heir.open("heir")
            await heir.credit(1)

            assert len(await heir.leases()) == 1


async def test_an_older_incarnation_is_told_that_it_is_over(api: Api, worker: StreamPeer) -> None:
    opened = await worker.open("w")
    await worker.credit(1)
    await parked(api, 1)
    await api.register("w")

    ended = await worker.pushed("stream_ended")
    resume = {"worker_id": "w", "incarnation": opened["incarnation"]}

    assert ended["payload"]["code"] == "stale_incarnation"
    refused = await worker.ask("stream_resume", payload=resume)
    assert refused["code"] == "stale_incarnation"


# --- who may ------------------------------------------------------------------------------------


async def test_streams_need_the_packed_subprotocol(client: Peer) -> None:
    refused = await client.ask("stream_open", payload={"worker_id": "w"})

    assert refused["code"] == "invalid"
    assert "rota.v1.msgpack" in refused["error"]


@pytest.mark.parametrize("kind", ["credit", "results", "progress", "beat"])
async def test_a_socket_without_a_stream_is_told_to_open_one(worker: StreamPeer, kind: str) -> None:
    payloads: dict[str, Any] = {
        "credit": {"free": 1, "taken": 0},
        "results": {"results": []},
        "progress": {"items": []},
        "beat": {},
    }

    refused = await worker.ask(f"stream_{kind}", payload=payloads[kind])

    assert "stream_open" in refused["error"]


@pytest.mark.parametrize(
    "payload",
    [
        {"free": -1, "taken": 0},
        {"free": 1},
        {"free": 1, "taken": 0, "more": 1},
        [],
        None,
    ],
)
async def test_a_credit_that_is_none_is_refused(worker: StreamPeer, payload: Any) -> None:
    await worker.open()

    assert (await worker.ask("stream_credit", payload=payload))["code"] == "invalid"


async def test_numbers_that_no_task_has_are_refused(worker: StreamPeer) -> None:
    await worker.open()

    assert (await worker.report([2**64 - 1, 1]))["code"] == "invalid"
    assert (await worker.report([-1, 1]))["code"] == "invalid"


# --- more at once than is taken -----------------------------------------------------------------


async def test_a_worker_that_says_more_than_can_be_committed_is_not_listened_to_meanwhile(
    api: Api, worker: StreamPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_CALLS", 2)
    await worker.open()
    (socket,) = api.node.sockets._open
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, socket._calls)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    said = [await worker.say("stream_beat", payload={"running": []}) for _ in range(20)]
    answered = [(await worker.pushed("stream_beatResponse"))["replyTo"] for _ in said]
    watching.cancel()

    assert answered == said
    # One more is heard before it is seen that there is no room, and one is taken up already.
    assert 2 < most <= 4
    assert socket.has_capacity


async def test_large_messages_that_wait_for_their_commit_leave_no_room(
    api: Api, worker: StreamPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_CALL_BYTES", 1_000)
    (socket,) = api.node.sockets._open

    seen = []
    for change in (socket.begin_call, socket.begin_call, socket.end_call, socket.end_call):
        change(600)
        seen.append(socket.has_capacity)

    assert seen == [True, False, True, True]
    assert (await worker.open())["incarnation"] > 0
