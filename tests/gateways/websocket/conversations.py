"""What is said at sockets, and what follows from it: the contract's table, as transcripts.

A conversation is a list of steps. A socket says frames, or hears some: all that are listed, in any
order, and at the end of the conversation nothing more. They are plain values, so that a client of
any library can be driven by them. `S` stands for the address of the hearer's session.
"""

from typing import Any, NamedTuple
from unittest.mock import ANY

from tests.gateways.serving import Json

MAIN = "coordinator:main"
PROXY = "client:coordinator-proxy"
WORKER_PROXY = "client:worker-proxy"
UI = "client:ui"


class Say(NamedTuple):
    socket: str  # each that speaks is opened when it is first named
    frame: Json  # a text or bytes as they are, anything else as JSON


class Hear(NamedTuple):
    socket: str
    frames: tuple[Json, ...]


class Open(NamedTuple):
    """Open a socket of a named session."""

    socket: str
    session: str


class Close(NamedTuple):
    socket: str


Step = Say | Hear | Open | Close


class Conversation(NamedTuple):
    name: str
    steps: tuple[Step, ...]


# --- how frames are written -----------------------------------------------------------------------


def ask(socket: str, kind: str, number: Json, payload: Json = None, **more: Json) -> Say:
    return Say(socket, envelope(kind, number, payload, **more))


def envelope(kind: str, number: Json, payload: Json = None, **more: Json) -> Json:
    said = {"to": MAIN, "type": kind, "id": number, **more}
    return said if payload is None else {**said, "payload": payload}


def hear(socket: str, *frames: Json) -> Hear:
    return Hear(socket, frames)


def reply(kind: str, number: Json, payload: Json, to: str = UI) -> Json:
    return {
        "type": f"{kind}Response",
        "to": to,
        "from": "S",
        "payload": payload,
        "replyTo": number,
        "id": ANY,
        "timestamp": ANY,
    }


def given(task_id: str, worker_id: str, payload: Json = None, **more: Json) -> Json:
    """A task is pushed to a worker."""
    usual = {"fence": 1, "name": "task", "queue": "main", "attempt": 1}
    return {
        "type": "process_task",
        "from": "coordinator",
        "to": worker_id,
        "taskId": task_id,
        "payload": payload,
        "id": ANY,
        "timestamp": ANY,
        **usual,
        **more,
    }


def told(kind: str, payload: Json) -> Json:
    """The end of a task is pushed to its submitter."""
    return {
        "type": kind,
        "to": UI,
        "from": MAIN,
        "payload": payload,
        "id": ANY,
        "timestamp": ANY,
    }


def refused(text: str, code: str, **more: Json) -> Json:
    return {
        "type": "Error",
        "to": UI,
        "from": "S",
        "payload": {"error": text, "code": code},
        "id": ANY,
        "timestamp": ANY,
        **more,
    }


def event(number: Json, kind: str, subject: Any = ANY) -> Json:
    return {
        "type": "Event",
        "to": UI,
        "from": ANY,
        "replyTo": number,
        "payload": {"seq": ANY, "type": kind, "subject": subject, "data": ANY, "at_ms": ANY},
        "id": ANY,
        "timestamp": ANY,
    }


def registered(socket: str, number: Json, worker_id: str) -> tuple[Step, ...]:
    known = {"status": "registered", "workerId": worker_id}
    return (
        ask(socket, "register_worker", number, **{"from": worker_id}),
        hear(socket, reply("register_worker", number, known, PROXY)),
    )


def assigned(task_id: str, worker_id: str) -> Json:
    return {"status": "assigned", "taskId": task_id, "workerId": worker_id}


def queued(task_id: str, position: int) -> Json:
    return {"status": "queued", "taskId": task_id, "position": position}


# --- the table ----------------------------------------------------------------------------------

COORDINATOR = (
    Conversation(
        "a worker registers under the envelope's name and is given what waits",
        (
            ask("a", "assign_task", 1, "task-1"),
            hear("a", reply("assign_task", 1, queued("task-1", 1), PROXY)),
            ask("a", "register_worker", 2, **{"from": "worker-1"}),
            hear(
                "a",
                reply(
                    "register_worker", 2, {"status": "registered", "workerId": "worker-1"}, PROXY
                ),
                given("task-1", "worker-1"),
            ),
        ),
    ),
    Conversation(
        "a worker may be named in the payload",
        (
            ask("a", "register_worker", 1, {"workerId": "worker-7"}),
            hear(
                "a",
                reply(
                    "register_worker", 1, {"status": "registered", "workerId": "worker-7"}, PROXY
                ),
            ),
        ),
    ),
    Conversation(
        "a task is assigned while a worker is free and queued when not",
        (
            *registered("a", 1, "worker-1"),
            ask("a", "assign_task", "t1", "task-1"),
            hear(
                "a",
                reply("assign_task", "t1", assigned("task-1", "worker-1"), PROXY),
                given("task-1", "worker-1"),
            ),
            ask("a", "assign_task", "t2", "task-2"),
            hear("a", reply("assign_task", "t2", queued("task-2", 1), PROXY)),
            ask("a", "assign_task", "t3", {"taskId": "task-3"}),
            hear("a", reply("assign_task", "t3", queued("task-3", 2), PROXY)),
        ),
    ),
    Conversation(
        "a task may say more than its id",
        (
            ask("a", "register_worker", 1, {"workerId": "w", "capabilities": ["gpu"]}),
            hear(
                "a",
                reply("register_worker", 1, {"status": "registered", "workerId": "w"}, PROXY),
            ),
            ask(
                "a",
                "assign_task",
                2,
                {
                    "taskId": "t",
                    "name": "resize",
                    "payload": {"w": [1, 2.5]},
                    "priority": 3,
                    "requires": ["gpu"],
                },
            ),
            hear(
                "a",
                reply("assign_task", 2, assigned("t", "w"), PROXY),
                given("t", "w", {"w": [1, 2.5]}, name="resize"),
            ),
        ),
    ),
    Conversation(
        "a completion is answered, its submitter is told, and the next task is given",
        (
            *registered("w", 1, "worker-1"),
            ask("c", "assign_task", 1, "task-1"),
            hear("c", reply("assign_task", 1, assigned("task-1", "worker-1"), PROXY)),
            hear("w", given("task-1", "worker-1")),
            ask("c", "assign_task", 2, "task-2"),
            hear("c", reply("assign_task", 2, queued("task-2", 1), PROXY)),
            ask(
                "w",
                "task_complete",
                2,
                {"taskId": "task-1", "workerId": "worker-1", "result": {"n": 1}},
            ),
            hear(
                "w",
                reply("task_complete", 2, {"status": "completed", "taskId": "task-1"}, PROXY),
                given("task-2", "worker-1"),
            ),
            hear("c", told("TaskCompleted", {"taskId": "task-1", "result": {"n": 1}})),
        ),
    ),
    Conversation(
        "a completion by any other than the holder changes nothing",
        (
            *registered("a", 1, "worker-1"),
            ask("a", "assign_task", 2, "task-1"),
            hear(
                "a",
                reply("assign_task", 2, assigned("task-1", "worker-1"), PROXY),
                given("task-1", "worker-1"),
            ),
            *registered("a", 3, "worker-2"),
            ask("a", "task_complete", 4, {"taskId": "task-1", "workerId": "worker-2"}),
            hear(
                "a",
                reply(
                    "task_complete",
                    4,
                    {"error": "task 'task-1' is not held by this worker", "code": "stale_lease"},
                    PROXY,
                ),
            ),
            ask("a", "task_complete", 5, {"taskId": "task-1", "workerId": "nobody"}),
            hear(
                "a",
                reply("task_complete", 5, {"error": ANY, "code": "worker_not_found"}, PROXY),
            ),
            ask("a", "get_status", 6),
            hear(
                "a",
                reply(
                    "get_status",
                    6,
                    {
                        "workers": ["worker-1", "worker-2"],
                        "queuedTasks": 0,
                        "activeTasks": [["task-1", "worker-1"]],
                    },
                    PROXY,
                ),
            ),
        ),
    ),
    Conversation(
        "a failure is tried again, and the last one is told",
        (
            *registered("a", 1, "worker-1"),
            ask("a", "assign_task", 2, "task-1"),
            hear(
                "a",
                reply("assign_task", 2, assigned("task-1", "worker-1"), PROXY),
                given("task-1", "worker-1"),
            ),
            ask(
                "a",
                "task_failed",
                3,
                {"taskId": "task-1", "workerId": "worker-1", "error": "jammed", "retryInMs": 0},
            ),
            hear(
                "a",
                reply("task_failed", 3, {"status": "failed", "taskId": "task-1"}),
                given("task-1", "worker-1", fence=2, attempt=2),
            ),
            ask(
                "a",
                "task_failed",
                4,
                {
                    "taskId": "task-1",
                    "workerId": "worker-1",
                    "error": {"type": "Broken", "message": "for good"},
                    "retry": False,
                },
            ),
            hear(
                "a",
                reply("task_failed", 4, {"status": "failed", "taskId": "task-1"}),
                told("TaskFailed", {"taskId": "task-1", "error": ANY}),
            ),
        ),
    ),
    Conversation(
        "progress is noted and a heartbeat says what the worker has",
        (
            *registered("a", 1, "worker-1"),
            ask("a", "assign_task", 2, "task-1"),
            hear(
                "a",
                reply("assign_task", 2, assigned("task-1", "worker-1"), PROXY),
                given("task-1", "worker-1"),
            ),
            ask(
                "a",
                "report_progress",
                3,
                {"taskId": "task-1", "workerId": "worker-1", "progress": 0.5},
            ),
            hear("a", reply("report_progress", 3, {"status": "noted", "taskId": "task-1"})),
            ask("a", "heartbeat", 4, {"workerId": "worker-1", "load": {"x": 1}}),
            hear(
                "a",
                reply(
                    "heartbeat",
                    4,
                    {"status": "ok", "workerId": "worker-1", "holding": ["task-1"]},
                ),
            ),
        ),
    ),
    Conversation(
        "a worker that leaves gives back what it has",
        (
            *registered("a", 1, "worker-1"),
            ask("a", "assign_task", 2, "task-1"),
            hear(
                "a",
                reply("assign_task", 2, assigned("task-1", "worker-1"), PROXY),
                given("task-1", "worker-1"),
            ),
            ask("a", "unregister_worker", 3, {"workerId": "worker-1"}),
            hear(
                "a",
                reply(
                    "unregister_worker",
                    3,
                    {"status": "unregistered", "workerId": "worker-1", "released": 1},
                ),
            ),
            ask("a", "get_status", 4),
            hear(
                "a",
                reply("get_status", 4, {"workers": [], "queuedTasks": 1, "activeTasks": []}, PROXY),
            ),
        ),
    ),
    Conversation(
        "each coordinator is a queue of its own",
        (
            ask("a", "register_worker", 1, to="coordinator:left", **{"from": "w"}),
            hear(
                "a",
                reply("register_worker", 1, {"status": "registered", "workerId": "w"}, PROXY),
            ),
            ask("a", "assign_task", 2, "t", to="coordinator:right"),
            hear("a", reply("assign_task", 2, queued("t", 1), PROXY)),
            ask("a", "assign_task", 3, "t", to="coordinator:left"),
            hear(
                "a",
                reply("assign_task", 3, assigned("t", "w"), PROXY),
                given("t", "w", queue="left"),
            ),
            ask("a", "get_status", 4, to="coordinator:right"),
            hear(
                "a",
                reply("get_status", 4, {"workers": [], "queuedTasks": 1, "activeTasks": []}, PROXY),
            ),
        ),
    ),
)

WORKER = (
    Conversation(
        "the state of a worker",
        (
            ask("a", "get_state", 1, to="worker:worker-1"),
            hear(
                "a",
                reply(
                    "get_state",
                    1,
                    {"workerId": "worker-1", "currentTask": None, "processedCount": 0},
                ),
            ),
            *registered("a", 2, "worker-1"),
            ask("a", "assign_task", 3, "task-1"),
            hear(
                "a",
                reply("assign_task", 3, assigned("task-1", "worker-1"), PROXY),
                given("task-1", "worker-1"),
            ),
            ask("a", "get_state", 4, to="worker:worker-1"),
            hear(
                "a",
                reply(
                    "get_state",
                    4,
                    {"workerId": "worker-1", "currentTask": "task-1", "processedCount": 0},
                ),
            ),
        ),
    ),
    Conversation(
        "one worker is told to do one task, named beside the payload or in it",
        (
            *registered("w", 1, "worker-1"),
            *registered("w", 2, "worker-2"),
            ask("c", "process_task", 1, {"payload": 7}, to="worker:worker-2", taskId="task-1"),
            hear("w", given("task-1", "worker-2", 7)),
            ask(
                "w",
                "task_complete",
                3,
                {"taskId": "task-1", "workerId": "worker-2", "result": "done"},
            ),
            hear(
                "w", reply("task_complete", 3, {"status": "completed", "taskId": "task-1"}, PROXY)
            ),
            hear(
                "c",
                reply(
                    "process_task",
                    1,
                    {"status": "completed", "taskId": "task-1", "result": "done"},
                    WORKER_PROXY,
                ),
            ),
            ask("c", "process_task", 2, {"taskId": "task-2"}, to="worker:worker-1"),
            hear("w", given("task-2", "worker-1")),
            ask(
                "w",
                "task_failed",
                4,
                {"taskId": "task-2", "workerId": "worker-1", "error": "no", "retry": False},
            ),
            hear("w", reply("task_failed", 4, {"status": "failed", "taskId": "task-2"})),
            hear(
                "c",
                reply("process_task", 2, {"error": "no", "code": "task_failed"}, WORKER_PROXY),
            ),
        ),
    ),
    Conversation(
        "nobody can be told to do anything that nobody knows",
        (
            ask("a", "process_task", 1, {"taskId": "t"}, to="worker:nobody"),
            hear(
                "a",
                reply("process_task", 1, {"error": ANY, "code": "worker_not_found"}, WORKER_PROXY),
            ),
        ),
    ),
)

ANYBODY = (
    Conversation(
        "events follow a subscription, from a number on, until it is ended",
        (
            ask("a", "assign_task", 1, "task-1"),
            hear("a", reply("assign_task", 1, queued("task-1", 1), PROXY)),
            ask("a", "subscribe", 2, {"types": ["task-submitted"], "after": 0}),
            hear(
                "a",
                reply("subscribe", 2, {"status": "subscribed", "subscriptionId": ANY, "after": 0}),
                event(2, "task-submitted"),
            ),
            ask("a", "assign_task", 3, "task-2"),
            hear(
                "a",
                reply("assign_task", 3, queued("task-2", 2), PROXY),
                event(2, "task-submitted"),
            ),
            ask("a", "unsubscribe", 4, to="worker:any"),
            hear("a", reply("unsubscribe", 4, {"status": "unsubscribed", "count": 1})),
            ask("a", "assign_task", 5, "task-3"),
            hear("a", reply("assign_task", 5, queued("task-3", 3), PROXY)),
        ),
    ),
    Conversation(
        "a type that nobody knows is named so",
        (
            ask("a", "dance", 1),
            hear("a", reply("dance", 1, {"error": "Unknown message type"})),
            ask("a", "get_status", 2, to="worker:w"),
            hear("a", reply("get_status", 2, {"error": "Unknown message type"})),
        ),
    ),
    Conversation(
        "an address that leads nowhere is named",
        (
            ask("a", "get_status", "n", to="nowhere"),
            hear("a", refused("Invalid 'to' field: nowhere", "invalid_address", replyTo="n")),
            ask("a", "get_status", "m", to="coordinator:"),
            hear("a", refused("Invalid 'to' field: coordinator:", "invalid_address", replyTo="m")),
            ask("a", "get_status", "p", to="printer:one"),
            hear("a", refused("Unknown actor type: printer", "unknown_actor_type", replyTo="p")),
        ),
    ),
    Conversation(
        "what is no envelope is called so",
        tuple(
            step
            for frame in ("", "nonsense", "null", "5", '"a"', "{}", '{"type": "get_status"}')
            for step in (
                Say("a", frame),
                hear("a", refused("Invalid message format", "invalid_message")),
            )
        ),
    ),
    Conversation(
        "a binary frame that was not agreed on is passed over",
        (
            Say("a", b'{"to": "coordinator:main", "type": "get_status"}'),
            Say("a", '{"type": "ping"}'),
            hear("a", {"type": "pong"}),
        ),
    ),
    Conversation(
        "pings get their pongs",
        (
            Say("a", {"type": "ping"}),
            hear("a", {"type": "pong"}),
            Say("a", {"to": "__system__", "from": "me", "type": "HEARTBEAT_PING", "id": "h-1"}),
            hear(
                "a",
                {
                    "type": "HEARTBEAT_PONG",
                    "from": "__system__",
                    "to": "me",
                    "id": "h-1",
                    "timestamp": ANY,
                },
            ),
        ),
    ),
    Conversation(
        "a frame may be an array of envelopes",
        (
            Say("a", []),
            Say(
                "a",
                [
                    envelope("assign_task", [1], "task-1"),
                    None,
                    {"type": "ping"},
                    envelope("get_status", {"two": 2}),
                ],
            ),
            hear(
                "a",
                reply("assign_task", [1], queued("task-1", 1), PROXY),
                refused("Invalid message format", "invalid_message"),
                {"type": "pong"},
                reply(
                    "get_status",
                    {"two": 2},
                    {"workers": [], "queuedTasks": 1, "activeTasks": []},
                    PROXY,
                ),
            ),
        ),
    ),
)

SESSIONS = (
    Conversation(
        "a reply goes to the asking socket and an end to all sockets of the session",
        (
            Open("one", "shop"),
            Open("two", "shop"),
            *registered("w", 1, "worker-1"),
            ask("one", "assign_task", 1, "task-1"),
            hear("one", reply("assign_task", 1, assigned("task-1", "worker-1"), PROXY)),
            hear("w", given("task-1", "worker-1")),
            ask("w", "task_complete", 2, {"taskId": "task-1", "workerId": "worker-1"}),
            hear(
                "w", reply("task_complete", 2, {"status": "completed", "taskId": "task-1"}, PROXY)
            ),
            hear("one", told("TaskCompleted", {"taskId": "task-1", "result": None})),
            hear("two", told("TaskCompleted", {"taskId": "task-1", "result": None})),
        ),
    ),
    Conversation(
        "a session is told after it came back what it has missed",
        (
            Open("one", "shop"),
            ask("one", "assign_task", 1, "task-1"),
            hear("one", reply("assign_task", 1, queued("task-1", 1), PROXY)),
            Close("one"),
            ask("w", "register_worker", 1, **{"from": "worker-1"}),
            hear(
                "w",
                reply(
                    "register_worker", 1, {"status": "registered", "workerId": "worker-1"}, PROXY
                ),
                given("task-1", "worker-1"),
            ),
            ask("w", "task_complete", 2, {"taskId": "task-1", "workerId": "worker-1", "result": 9}),
            hear(
                "w", reply("task_complete", 2, {"status": "completed", "taskId": "task-1"}, PROXY)
            ),
            Open("again", "shop"),
            hear("again", told("TaskCompleted", {"taskId": "task-1", "result": 9})),
        ),
    ),
)

CONVERSATIONS = (*COORDINATOR, *WORKER, *ANYBODY, *SESSIONS)
