"""Workers on sockets: what they are given, when they live, and how they come back."""

from pathlib import Path

from tests.gateways.serving import Api, served
from tests.gateways.websocket.talking import MAIN, Peer, peer, turn

LEASE_MS = 15_000


async def worker_of(api: Api, worker_id: str) -> dict[str, object]:
    found: dict[str, object] = (await api.get(f"/api/workers/{worker_id}")).json()
    return found


async def lost(api: Api) -> None:
    """Let so much time pass that a silent worker is taken for dead."""
    for _ in range(LEASE_MS // 1_000 + 2):  # in small steps, or it would look like our own pause
        await turn(api, 1_000)


# --- what they are given ------------------------------------------------------------------------


async def test_several_workers_live_on_one_socket(client: Peer) -> None:
    for number in range(3):
        await client.register(f"w{number}")
    answers = [await client.assign(f"t{number}") for number in range(3)]

    given = [await client.given() for _ in range(3)]

    assert {one["workerId"] for one in answers} == {"w0", "w1", "w2"}
    assert [(one["to"], one["taskId"]) for one in given] == [
        (answer["workerId"], answer["taskId"]) for answer in answers
    ]


async def test_a_worker_is_given_as_many_tasks_as_it_takes(client: Peer) -> None:
    for number in range(30):
        await client.assign(f"t{number}")

    await client.register("w", maxConcurrentTasks=25)
    given = [(await client.given())["taskId"] for _ in range(25)]

    assert given == [f"t{number}" for number in range(25)]
    assert await client.quiet() == []
    assert (await client.ask("get_status"))["queuedTasks"] == 5


async def test_a_worker_may_serve_several_coordinators(client: Peer) -> None:
    await client.register("w", "coordinator:a", maxConcurrentTasks=2)
    await client.assign("t", "coordinator:a")

    again = await client.register("w", "coordinator:b", maxConcurrentTasks=2)
    await client.assign("t", "coordinator:b")
    given = [await client.given() for _ in range(2)]
    done = await client.complete("t", "w", "coordinator:b")

    assert again["holding"] == ["t"]
    assert [one["queue"] for one in given] == ["a", "b"]
    assert done["status"] == "completed"
    assert (await client.ask("get_status", "coordinator:a"))["activeTasks"] == [["t", "w"]]
    assert (await client.ask("get_status", "coordinator:b"))["activeTasks"] == []


async def test_a_worker_takes_only_the_tasks_it_names(client: Peer) -> None:
    await client.register("w", tasks=["resize"])

    assert (await client.assign({"taskId": "t", "name": "print"}))["status"] == "queued"
    assert (await client.assign({"taskId": "u", "name": "resize"}))["status"] == "assigned"


async def test_a_task_that_was_cancelled_is_called_off(api: Api, client: Peer) -> None:
    await client.register("w")
    await client.assign("t")
    await client.given()

    await api.post("/api/tasks/cancel", {"queue": "main"})
    await turn(api, 1_000)
    off = await client.pushed("cancel_task")
    late = await client.complete("t", "w")

    assert (off["taskId"], off["to"], off["fence"]) == ("t", "w", 1)
    assert off["payload"] == {"reason": "cancelled"}
    assert late["code"] == "stale_lease"


async def test_a_task_that_moved_on_is_called_off(api: Api, client: Peer) -> None:
    await api.submit(queue="main", timeout_ms=1_000, max_attempts=1)
    await client.register("w")
    given = await client.given()

    await api.turn(2_000)
    await client.quiet()
    await turn(api, 1_000)
    off = await client.pushed("cancel_task")

    assert (off["taskId"], off["payload"]) == (given["taskId"], {"reason": "lost"})


# --- who may speak for them ---------------------------------------------------------------------


async def test_another_socket_of_the_session_may_speak_for_a_worker(api: Api, alice: Peer) -> None:
    await alice.register("w")
    await alice.assign("t")

    async with peer(api, "alice") as other:
        assert (await other.complete("t", "w"))["status"] == "completed"


async def test_another_session_may_not_speak_for_a_worker(alice: Peer, bob: Peer) -> None:
    await alice.register("w")
    await alice.assign("t")
    of_task = {"taskId": "t", "workerId": "w"}

    refused = [
        await bob.complete("t", "w"),
        await bob.ask("task_failed", MAIN, of_task),
        await bob.ask("report_progress", MAIN, {**of_task, "progress": 1}),
        await bob.ask("heartbeat", MAIN, {"workerId": "w"}),
        await bob.ask("unregister_worker", MAIN, {"workerId": "w"}),
    ]

    assert {one["code"] for one in refused} == {"forbidden"}
    assert (await alice.ask("get_status"))["activeTasks"] == [["t", "w"]]


async def test_a_word_about_an_older_lease_is_refused(client: Peer) -> None:
    await client.register("w")
    await client.assign("t")
    again = {"taskId": "t", "workerId": "w", "error": "jammed", "retryInMs": 0}
    await client.ask("task_failed", MAIN, again)
    first, second = await client.given(), await client.given()

    stale = await client.complete("t", "w", fence=first["fence"])
    done = await client.complete("t", "w", fence=second["fence"])

    assert stale["code"] == "stale_lease"
    assert done["status"] == "completed"


async def test_a_worker_that_came_over_http_is_another(api: Api, client: Peer) -> None:
    plain = await api.register("w", queues=["main"])
    await client.assign("t")
    await plain.lease()

    answer = await client.register("w")

    assert answer == {"status": "registered", "workerId": "w"}
    assert (await plain.call("heartbeat", {"incarnation": plain.incarnation})).status_code == 409
    assert (await client.given())["fence"] == 2


# --- when they live -----------------------------------------------------------------------------


async def test_a_socket_whose_peer_is_heard_of_keeps_its_workers_alive(
    api: Api, client: Peer
) -> None:
    await client.register("w1")
    await client.register("w2")
    await client.assign("t")

    for _ in range(6):
        await client.quiet()
        await turn(api, 5_000)

    assert (await client.ask("get_status"))["workers"] == ["w1", "w2"]
    assert (await worker_of(api, "w1"))["health"] == "healthy"


async def test_a_socket_is_not_late_by_our_own_pace_however_strict_the_settings(
    tmp_path: Path,
) -> None:
    strict = {"degraded_after": 0.5, "unhealthy_after": 1.0}
    async with (
        served(tmp_path, store="sqlite://", zmq_port=None, **strict) as api,
        peer(api) as client,
    ):
        await client.register("w")
        for _ in range(3):
            for _ in range(8):  # as long as it may take until a silent peer is beaten for
                await turn(api, 1_000)
                assert (await worker_of(api, "w"))["health"] == "healthy"
            await client.quiet()


async def test_all_workers_are_beaten_for_in_one_batch(api: Api, client: Peer) -> None:
    for number in range(20):
        await client.register(f"w{number}")
    figures = api.node.coordinator.metrics()
    before = figures.batches, figures.batched_events

    await api.node.sockets.services.socket_workers.beat()

    assert (figures.batches - before[0], figures.batched_events - before[1]) == (1, 20)


async def test_an_open_socket_whose_peer_is_not_heard_of_is_no_sign_of_life(
    api: Api, client: Peer, bob: Peer
) -> None:
    await client.register("w")
    await client.assign("t")
    await client.given()

    await lost(api)
    await bob.register("x")
    given = await bob.given()
    await client.ask("get_status")
    await api.node.sockets.send_heartbeats()
    told = await client.pushed("Error")

    assert (given["taskId"], given["fence"]) == ("t", 2)
    assert told["payload"]["code"] == "worker_not_found"


async def test_a_dead_socket_loses_its_tasks_to_others_after_the_lease(api: Api, bob: Peer) -> None:
    async with peer(api) as dying:
        await dying.register("w")
        await dying.assign("t")
        await dying.given()
    await bob.register("x")

    await bob.quiet()
    await turn(api, LEASE_MS - 5_000)
    before = await bob.quiet()
    await lost(api)
    await bob.register("x")
    given = await bob.given()

    assert before == []
    assert (given["taskId"], given["fence"], given["to"]) == ("t", 2, "x")


# --- how they come back -------------------------------------------------------------------------


async def test_a_worker_that_comes_back_in_time_keeps_its_tasks(api: Api, alice: Peer) -> None:
    async with peer(api, "worker") as before:
        await before.register("w")
        await alice.assign("t")
        await alice.assign("u")
        await before.given()
        incarnation = (await worker_of(api, "w"))["incarnation"]
    api.clock.turn(LEASE_MS - 1_000)

    async with peer(api, "worker") as back:
        answer = await back.register("w")
        silence = await back.quiet()
        done = await back.complete("t", "w")
        following = await back.given()

    assert answer == {"status": "registered", "workerId": "w", "holding": ["t"]}
    assert (await worker_of(api, "w"))["incarnation"] == incarnation
    assert silence == []
    assert done["status"] == "completed"
    assert (following["taskId"], following["fence"]) == ("u", 1)


async def test_a_worker_that_says_what_it_still_runs_gives_back_the_rest(
    api: Api, client: Peer
) -> None:
    async with peer(api) as before:
        await before.register("w", maxConcurrentTasks=3)
        for name in "tuv":
            await client.assign(name)
        for _ in "tuv":
            await before.given()

    answer = await client.register("w", maxConcurrentTasks=3, holding=["u"])
    given = [await client.given() for _ in range(2)]

    assert answer["holding"] == ["u"]
    assert [(one["taskId"], one["fence"]) for one in given] == [("t", 2), ("v", 2)]


async def test_what_a_worker_may_never_have_got_is_pushed_once_more(api: Api, client: Peer) -> None:
    async with peer(api) as before:
        await before.register("w")
        await client.assign("t")
        first = await before.given()
    await client.register("w")

    for _ in range(6):
        assert await client.quiet() == []
        await turn(api, 5_000)
    second = await client.given()
    for _ in range(7):
        assert await client.quiet() == []
        await turn(api, 5_000)

    assert (second["taskId"], second["fence"]) == (first["taskId"], first["fence"])


async def test_the_newest_socket_of_a_worker_counts(api: Api, alice: Peer, bob: Peer) -> None:
    await alice.register("w")
    await alice.assign("t")
    await alice.given()

    answer = await bob.register("w")
    told = await alice.pushed("Error")
    refused = await alice.complete("t", "w")
    done = await bob.complete("t", "w")
    await alice.assign("u")

    assert answer["holding"] == ["t"]
    assert told["payload"]["code"] == "worker_replaced"
    assert refused["code"] == "forbidden"
    assert done["status"] == "completed"
    assert (await bob.given())["taskId"] == "u"


async def test_registering_twice_on_one_socket_changes_nothing(client: Peer) -> None:
    await client.register("w")
    await client.assign("t")

    answer = await client.register("w")
    frames = await client.quiet()

    assert answer["holding"] == ["t"]
    assert [frame["type"] for frame in frames] == ["process_task"]


async def test_a_worker_removed_by_an_operator_is_told(api: Api, client: Peer) -> None:
    await client.register("w")

    await api.delete("/api/workers/w")
    told = await client.pushed("Error")

    assert told["payload"]["code"] == "worker_not_found"
    assert (await client.complete("t", "w"))["code"] == "worker_not_found"
    assert (await client.register("w"))["status"] == "registered"
