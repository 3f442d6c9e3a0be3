"""The contract, row by row."""

import json
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from tests.gateways.serving import Api, Json
from tests.gateways.websocket.talking import MAIN, Peer, address_of, golden


async def transcript(client: Peer, kind: str, to: str, payload: Json, **more: Json) -> Json:
    return golden(await client.reply(await client.say(kind, to, payload, **more)))


def reply(client: Peer, kind: str, payload: Json, *, number: int, to: str) -> Json:
    return {
        "type": f"{kind}Response",
        "to": to,
        "from": f"session:{client.session_id}",
        "payload": payload,
        "replyTo": number,
    }


PROXY = "client:coordinator-proxy"


# --- the door -----------------------------------------------------------------------------------


async def test_a_request_without_an_upgrade_is_told_what_was_expected(api: Api) -> None:
    answer = await api.get("/ws")

    assert (answer.status_code, answer.text) == (400, "Expected WebSocket")


async def test_the_first_frame_names_the_session(api: Api) -> None:
    async with connect(address_of(api, "first")) as socket:
        frame = json.loads(await socket.recv())

    session_id = frame["payload"]["sessionId"]
    assert len(session_id) == 64
    assert set(session_id) <= set("0123456789abcdef")
    assert golden(frame) == {
        "type": "SessionEstablished",
        "to": "client:ui",
        "from": f"session:{session_id}",
        "payload": {"sessionId": session_id},
    }


# --- to a coordinator ---------------------------------------------------------------------------


async def test_a_worker_registers_and_is_given_what_waits(client: Peer) -> None:
    queued = await transcript(client, "assign_task", MAIN, "task-1")
    registered = await transcript(client, "register_worker", MAIN, None, **{"from": "worker-1"})
    pushed = await client.given()

    waiting = {"status": "queued", "taskId": "task-1", "position": 1}
    assert queued == reply(client, "assign_task", waiting, number=1, to=PROXY)
    known = {"status": "registered", "workerId": "worker-1"}
    assert registered == reply(client, "register_worker", known, number=2, to=PROXY)
    assert golden(pushed) == {
        "type": "process_task",
        "from": "coordinator",
        "to": "worker-1",
        "taskId": "task-1",
        "payload": None,
        "fence": 1,
        "name": "task",
        "queue": "main",
        "attempt": 1,
    }


async def test_a_worker_may_be_named_in_the_payload(client: Peer) -> None:
    named = await transcript(client, "register_worker", MAIN, {"workerId": "worker-7"})

    assert named["payload"] == {"status": "registered", "workerId": "worker-7"}


async def test_a_task_goes_to_a_worker_that_is_free(client: Peer) -> None:
    await client.register("worker-1")

    first = await transcript(client, "assign_task", MAIN, "task-1")
    second = await transcript(client, "assign_task", MAIN, "task-2")
    third = await transcript(client, "assign_task", MAIN, "task-3")

    assigned = {"status": "assigned", "taskId": "task-1", "workerId": "worker-1"}
    assert first == reply(client, "assign_task", assigned, number=2, to=PROXY)
    assert second["payload"] == {"status": "queued", "taskId": "task-2", "position": 1}
    assert third["payload"] == {"status": "queued", "taskId": "task-3", "position": 2}


async def test_a_task_may_say_more_than_its_id(client: Peer) -> None:
    await client.register("worker-1", capabilities=["gpu"])
    task = {"taskId": "t", "name": "resize", "payload": {"w": [1, 2.5]}, "requires": ["gpu"]}

    answer = await client.assign(task)
    pushed = await client.given()

    assert answer == {"status": "assigned", "taskId": "t", "workerId": "worker-1"}
    assert (pushed["name"], pushed["payload"]) == ("resize", {"w": [1, 2.5]})


async def test_a_higher_priority_goes_first(client: Peer) -> None:
    for number, priority in ((1, 0), (2, 5)):
        await client.assign({"taskId": f"t{number}", "priority": priority})

    await client.register("worker-1")

    assert (await client.given())["taskId"] == "t2"


async def test_a_completion_is_answered_and_the_next_task_is_given(client: Peer) -> None:
    await client.register("worker-1")
    await client.assign("task-1")
    await client.assign("task-2")
    await client.given()

    done = {"taskId": "task-1", "workerId": "worker-1", "result": {"n": 1}}
    completed = await transcript(client, "task_complete", MAIN, done)
    told = await client.pushed("TaskCompleted")

    answer = {"status": "completed", "taskId": "task-1"}
    assert completed == reply(client, "task_complete", answer, number=4, to=PROXY)
    assert (await client.given())["taskId"] == "task-2"
    assert golden(told) == {
        "type": "TaskCompleted",
        "to": "client:ui",
        "from": "coordinator:main",
        "payload": {"taskId": "task-1", "result": {"n": 1}},
    }


async def test_a_completion_by_another_changes_nothing(client: Peer) -> None:
    await client.register("worker-1")
    await client.register("worker-2")
    holder = (await client.assign("task-1"))["workerId"]
    other = "worker-2" if holder == "worker-1" else "worker-1"

    refused = await client.complete("task-1", other)
    unknown = await client.complete("task-1", "worker-3")
    status = await client.ask("get_status")

    assert refused == {"error": "task 'task-1' is not held by this worker", "code": "stale_lease"}
    assert unknown["code"] == "worker_not_found"
    assert status["activeTasks"] == [["task-1", holder]]


async def test_a_repeated_completion_is_answered_the_same(client: Peer) -> None:
    await client.register("worker-1")
    await client.assign("task-1")

    answers = [await client.complete("task-1", "worker-1", result=1) for _ in range(3)]

    assert answers == [{"status": "completed", "taskId": "task-1"}] * 3
    assert await client.ask("get_state", "worker:worker-1") == {
        "workerId": "worker-1",
        "currentTask": None,
        "processedCount": 1,
    }


async def test_a_failure_is_tried_again_unless_it_is_no_use(client: Peer) -> None:
    await client.register("worker-1")
    await client.assign("task-1")
    of_task = {"taskId": "task-1", "workerId": "worker-1"}

    again = {**of_task, "error": "jammed", "retryInMs": 0}
    failed = await transcript(client, "task_failed", MAIN, again)
    first, second = await client.given(), await client.given()
    fault = {"type": "Broken", "message": "for good"}
    last = await client.ask("task_failed", MAIN, {**of_task, "error": fault, "retry": False})
    told = await client.pushed("TaskFailed")

    answer = {"status": "failed", "taskId": "task-1"}
    assert failed == reply(client, "task_failed", answer, number=3, to="client:ui")
    assert last == answer
    assert [one["fence"] for one in (first, second)] == [1, 2]
    assert told["payload"]["taskId"] == "task-1"
    assert told["payload"]["error"]["message"] == "for good"


async def test_progress_is_noted(api: Api, client: Peer) -> None:
    await client.register("worker-1")
    await client.assign("task-1")
    progress = {"taskId": "task-1", "workerId": "worker-1", "progress": 0.5}

    noted = await transcript(client, "report_progress", MAIN, progress)

    (task,) = (await api.get("/api/tasks?state=running")).json()["items"]
    answer = {"status": "noted", "taskId": "task-1"}
    assert noted == reply(client, "report_progress", answer, number=3, to="client:ui")
    assert task["progress"] == 0.5


async def test_a_heartbeat_says_what_the_worker_has(client: Peer) -> None:
    await client.register("worker-1")
    await client.assign("task-1")

    beat = await transcript(client, "heartbeat", MAIN, {"workerId": "worker-1", "load": {"x": 1}})

    answer = {"status": "ok", "workerId": "worker-1", "holding": ["task-1"]}
    assert beat == reply(client, "heartbeat", answer, number=3, to="client:ui")


async def test_a_worker_that_leaves_gives_back_what_it_has(client: Peer) -> None:
    await client.register("worker-1")
    await client.assign("task-1")

    left = await transcript(client, "unregister_worker", MAIN, {"workerId": "worker-1"})

    answer = {"status": "unregistered", "workerId": "worker-1", "released": 1}
    assert left == reply(client, "unregister_worker", answer, number=3, to="client:ui")
    status = await client.ask("get_status")
    assert status == {"workers": [], "queuedTasks": 1, "activeTasks": []}


async def test_the_status_of_a_coordinator(client: Peer) -> None:
    await client.register("worker-1")
    for number in range(1, 4):
        await client.assign(f"task-{number}")

    status = await transcript(client, "get_status", MAIN, None)

    found = {
        "workers": ["worker-1"],
        "queuedTasks": 2,
        "activeTasks": [["task-1", "worker-1"]],
    }
    assert status == reply(client, "get_status", found, number=5, to=PROXY)


async def test_each_coordinator_is_its_own(client: Peer) -> None:
    await client.register("worker-1", "coordinator:a")

    assert (await client.assign("task-1", "coordinator:b"))["status"] == "queued"
    assert (await client.assign("task-1", "coordinator:a"))["status"] == "assigned"
    assert (await client.ask("get_status", "coordinator:b"))["workers"] == []


# --- to a worker --------------------------------------------------------------------------------


async def test_the_state_of_a_worker(client: Peer) -> None:
    await client.register("worker-1")
    await client.assign("task-1")
    await client.complete("task-1", "worker-1")
    await client.assign("task-2")

    state = await transcript(client, "get_state", "worker:worker-1", None)

    found = {"workerId": "worker-1", "currentTask": "task-2", "processedCount": 1}
    assert state == reply(client, "get_state", found, number=5, to="client:ui")


async def test_a_worker_nobody_has_heard_of_has_done_nothing(client: Peer) -> None:
    state = await client.ask("get_state", "worker:nobody")

    assert state == {"workerId": "nobody", "currentTask": None, "processedCount": 0}


@pytest.mark.parametrize("place", ["beside", "inside"])
async def test_one_worker_is_told_to_do_one_task(client: Peer, place: str) -> None:
    for worker_id in ("worker-1", "worker-2", "worker-3"):
        await client.register(worker_id)
    inside = {"payload": {"x": 1}} | ({"taskId": "task-1"} if place == "inside" else {})
    beside = {"taskId": "task-1"} if place == "beside" else {}

    asked = await client.say("process_task", "worker:worker-2", inside, **beside)
    given = await client.given()
    await client.complete("task-1", "worker-2", result="done")
    ended = golden(await client.reply(asked))

    assert (given["to"], given["taskId"], given["payload"]) == ("worker-2", "task-1", {"x": 1})
    answer = {"status": "completed", "taskId": "task-1", "result": "done"}
    assert ended == reply(client, "process_task", answer, number=asked, to="client:worker-proxy")


async def test_a_task_that_one_worker_cannot_do_is_answered_with_its_error(client: Peer) -> None:
    await client.register("worker-1")

    asked = await client.say("process_task", "worker:worker-1", "task-1")
    await client.given()
    failed = {"taskId": "task-1", "workerId": "worker-1", "error": "no", "retry": False}
    await client.ask("task_failed", MAIN, failed)

    ended = await client.reply(asked)
    assert ended["payload"] == {"error": "no", "code": "task_failed"}


async def test_an_unknown_worker_cannot_be_told_to_do_anything(client: Peer) -> None:
    refused = await client.ask("process_task", "worker:nobody", {"taskId": "task-1"})

    assert refused["code"] == "worker_not_found"


# --- to any -------------------------------------------------------------------------------------


async def test_events_follow_a_subscription(client: Peer) -> None:
    await client.assign("task-1")
    wish = {"types": ["task-submitted"], "after": 0}
    number = await client.say("subscribe", MAIN, wish)
    answer = golden(await client.reply(number))
    await client.assign("task-2")

    events = [await client.pushed("Event") for _ in range(2)]
    ended = await client.ask("unsubscribe", "worker:any")

    assert answer["payload"].pop("subscriptionId")
    assert answer["payload"] == {"status": "subscribed", "after": 0}
    assert [event["replyTo"] for event in events] == [number, number]
    told = [event["payload"] for event in events]
    assert [one["type"] for one in told] == ["task-submitted", "task-submitted"]
    assert told[0]["seq"] < told[1]["seq"]
    assert set(told[0]) == {"seq", "type", "subject", "data", "at_ms"}
    assert ended == {"status": "unsubscribed", "count": 1}


async def test_a_type_that_nobody_knows_is_named_so(client: Peer) -> None:
    for to in (MAIN, "worker:worker-1"):
        asked = await client.say("dance", to, {"a": 1})
        answer = golden(await client.reply(asked))

        unknown = {"error": "Unknown message type"}
        assert answer == reply(client, "dance", unknown, number=asked, to="client:ui")


def error(client: Peer, text: str, code: str, **more: Any) -> Json:
    return {
        "type": "Error",
        "to": "client:ui",
        "from": f"session:{client.session_id}",
        "payload": {"error": text, "code": code},
        **more,
    }


NOWHERE = {
    "nonsense": ("Invalid 'to' field: nonsense", "invalid_address"),
    "": ("Invalid 'to' field: ", "invalid_address"),
    "coordinator:": ("Invalid 'to' field: coordinator:", "invalid_address"),
    ":main": ("Invalid 'to' field: :main", "invalid_address"),
    "printer:one": ("Unknown actor type: printer", "unknown_actor_type"),
}


async def test_an_address_that_leads_nowhere_is_named(client: Peer) -> None:
    for to, (text, code) in NOWHERE.items():
        asked = await client.say("get_status", to)

        answer = golden(await client.reply(asked))

        assert answer == error(client, text, code, replyTo=asked)


NO_ENVELOPES = ("", "nonsense", "null", "5", '"a"', "{}", '{"type": "get_status"}', '{"to": 5}')


async def test_what_is_no_envelope_is_called_so(client: Peer) -> None:
    for frame in NO_ENVELOPES:
        await client.send(frame)

        answer = golden(await client.receive())

        assert answer == error(client, "Invalid message format", "invalid_message"), frame


async def test_a_binary_frame_is_passed_over(client: Peer) -> None:
    await client.send(b'{"to": "coordinator:main", "type": "get_status"}')

    assert await client.quiet() == []


async def test_a_ping_gets_a_pong_and_nothing_else(client: Peer) -> None:
    await client.send('{"type": "ping"}')

    assert await client.receive() == {"type": "pong"}


async def test_a_heartbeat_ping_to_the_system_gets_a_pong_with_its_id(client: Peer) -> None:
    await client.send('{"to": "__system__", "from": "me", "type": "HEARTBEAT_PING", "id": "h-1"}')

    answer = await client.receive()

    assert isinstance(answer.pop("timestamp"), int)
    assert answer == {"type": "HEARTBEAT_PONG", "from": "__system__", "to": "me", "id": "h-1"}


async def test_a_frame_may_hold_many_envelopes(client: Peer) -> None:
    envelopes = [
        {"to": MAIN, "type": "assign_task", "payload": f"task-{number}", "id": number}
        for number in (1, 2)
    ]

    await client.send("[]")
    await client.send(json.dumps([*envelopes, None, {"type": "ping"}]))
    frames = [await client.receive() for _ in range(4)]

    assert [frame.get("replyTo") for frame in frames] == [1, 2, None, None]
    assert [frame["type"] for frame in frames[2:]] == ["Error", "pong"]


async def test_an_id_comes_back_as_it_was(client: Peer) -> None:
    for message_id in ("text", 5, 1.5, True, [1, {"a": None}], {"deep": ["er"]}):
        await client.send(json.dumps({"to": MAIN, "type": "get_status", "id": message_id}))

        assert (await client.receive())["replyTo"] == message_id


async def test_without_an_id_a_reply_refers_to_none(client: Peer) -> None:
    await client.send(json.dumps({"to": MAIN, "type": "get_status"}))

    assert "replyTo" not in await client.receive()


async def test_the_same_is_said_in_message_pack(api: Api) -> None:
    pack = msgspec.msgpack.encode
    packed = Subprotocol("rota.v1.msgpack")
    async with connect(address_of(api), subprotocols=[packed]) as socket:
        assert socket.subprotocol == "rota.v1.msgpack"
        established = msgspec.msgpack.decode(await socket.recv(decode=False))
        task = {"taskId": "t", "payload": {"a": [1, None]}}
        await socket.send(
            pack(
                [
                    {"to": MAIN, "type": "register_worker", "from": "w", "id": 1},
                    {"to": MAIN, "type": "assign_task", "payload": task, "id": [2]},
                ]
            )
        )
        registered, assigned, pushed = [
            msgspec.msgpack.decode(await socket.recv(decode=False)) for _ in range(3)
        ]
        done = {"taskId": "t", "workerId": "w", "result": {"b": "x"}}
        await socket.send(pack({"to": MAIN, "type": "task_complete", "payload": done}))
        completed, told = [
            msgspec.msgpack.decode(await socket.recv(decode=False)) for _ in range(2)
        ]

    assert established["type"] == "SessionEstablished"
    assert registered["payload"] == {"status": "registered", "workerId": "w"}
    assert (assigned["replyTo"], assigned["payload"]["status"]) == ([2], "assigned")
    assert pushed["payload"] == {"a": [1, None]}
    assert completed["payload"] == {"status": "completed", "taskId": "t"}
    assert told["payload"] == {"taskId": "t", "result": {"b": "x"}}
