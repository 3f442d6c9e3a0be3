"""The access rules of every route and message, written by hand.

Nothing here is read from the code under test: a rule that changes in the code has to be changed
here by a person who means it. A route without a row fails the matrix.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

Json = Any
Place = dict[str, str]  # what the placeholders of a request stand for

SCOPES = ("admin", "submit", "read", "worker")

ADMINS = ("admin",)
SUBMITTERS = ("admin", "submit")
READERS = ("admin", "submit", "read")
WORKERS = ("admin", "worker")
KEEPERS = ("admin", "submit", "worker")
ALL = SCOPES


class Reach(Enum):
    """What a token's binding means for a route."""

    OPEN = auto()  # no token is looked at
    ANY = auto()  # bound or not: the answer has nothing of any tenant in it
    LISTED = auto()  # bound or not: the answer has only what is the caller's
    QUEUE = auto()  # the target belongs to a queue, and a bound token must have that queue
    WORKER = auto()  # the target is a worker, and belongs to the binding that registered it
    SERVICE = auto()  # the target is a service, and a bound token must have it
    MEMBER = auto()  # the target is a worker in a service: both of the above
    SHARED = auto()  # shared by all queues: a token bound to queues or services is refused


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One row: which scopes open a route, what a binding means for it, and a valid request."""

    route: str  # "GET /api/tasks", or a type of WebSocket message
    scopes: tuple[str, ...]
    reach: Reach
    path: str = ""  # with placeholders; a message has its address here
    body: Json = None
    text: str | None = None  # a body that is not JSON
    before: str = ""  # how the target is made again, where an allowed request uses it up
    answers: tuple[int, ...] = (200,)  # to a caller that may
    is_hidden: bool = False  # what is another tenant's is not found, instead of refused


def rule(
    route: str,
    scopes: tuple[str, ...],
    reach: Reach,
    path: str = "",
    *,
    answers: tuple[int, ...] = (200,),
    **more: Any,
) -> Rule:
    default = route.partition(" ")[2]
    return Rule(
        route=route, scopes=scopes, reach=reach, path=path or default, answers=answers, **more
    )


def filled(template: Json, place: Place) -> Json:
    """A request with the names of a place in it."""
    match template:
        case str() if template == "{incarnation}":
            return int(place["incarnation"])
        case str():
            return template.format_map(place)
        case dict():
            return {name: filled(value, place) for name, value in template.items()}
        case list():
            return [filled(value, place) for value in template]
        case _:
            return template


O, A, L, Q = Reach.OPEN, Reach.ANY, Reach.LISTED, Reach.QUEUE  # noqa: E741 - columns of a table
W, S, M, X = Reach.WORKER, Reach.SERVICE, Reach.MEMBER, Reach.SHARED

WORKFLOW = '{"initial_node": "n", "nodes": {"n": {"wait_for": {"event": "go"}}}, "transitions": []}'
WORKER_BODY = {"worker_id": "{worker}", "queues": ["{own_queue}"]}
INCARNATION = {"incarnation": "{incarnation}"}
MEMBER_BEAT = {"maxShardCount": 4, "assignedShards": []}
JOINED = {"workerId": "{worker}", "maxShardCount": 4}

HTTP: tuple[Rule, ...] = (
    # --- tasks
    rule(
        "POST /api/tasks", SUBMITTERS, Q, answers=(201,), body={"name": "work", "queue": "{queue}"}
    ),
    rule("GET /api/tasks", READERS, L),
    rule("GET /api/tasks/{task_id}", READERS, Q, "/api/tasks/{task}"),
    rule(
        "POST /api/tasks/{task_id}/cancel",
        SUBMITTERS,
        Q,
        "/api/tasks/{task}/cancel",
        before="task",
    ),
    rule(
        "POST /api/tasks/{task_id}/retry",
        SUBMITTERS,
        Q,
        "/api/tasks/{failed_task}/retry",
        before="failed_task",
    ),
    rule("POST /api/tasks/cancel", SUBMITTERS, Q, body={"queue": "{queue}", "dry_run": True}),
    rule("POST /api/tasks/retry", SUBMITTERS, Q, body={"queue": "{queue}", "dry_run": True}),
    rule("POST /api/tasks/acknowledge", SUBMITTERS, Q, body={"queue": "{queue}", "dry_run": True}),
    rule(
        "POST /api/tasks/{task_id}/acknowledge",
        SUBMITTERS,
        Q,
        "/api/tasks/{failed_task}/acknowledge",
        before="failed_task",
    ),
    rule("GET /api/tasks/{task_id}/timeline", READERS, Q, "/api/tasks/{task}/timeline"),
    rule("GET /api/tasks/{task_id}/logs", READERS, Q, "/api/tasks/{task}/logs"),
    rule("GET /api/failures", READERS, L),
    rule(
        "POST /api/failures/{fingerprint}/retry",
        SUBMITTERS,
        Q,
        "/api/failures/{fingerprint}/retry",
        body={"dry_run": True},
        is_hidden=True,
    ),
    rule(
        "POST /api/failures/{fingerprint}/acknowledge",
        SUBMITTERS,
        Q,
        "/api/failures/{fingerprint}/acknowledge",
        body={"dry_run": True},
        is_hidden=True,
    ),
    # --- queues
    rule("GET /api/queues", READERS, L),
    rule("POST /api/queues/{queue}/pause", ADMINS, Q),
    rule("POST /api/queues/{queue}/resume", ADMINS, Q),
    rule("GET /api/queues/{queue}/tenants", READERS, Q),
    rule("PATCH /api/queues/{queue}", ADMINS, Q, body={"max_running": None}),
    # --- limits of keys: shared by all queues
    rule("GET /api/limits", READERS, X),
    rule("GET /api/recount/limits", ADMINS, X),
    rule("GET /api/limits/{key}", READERS, X, before="limit"),
    rule("PUT /api/limits/{key}", ADMINS, X, before="limit", body={"limit": 3}),
    rule("DELETE /api/limits/{key}", ADMINS, X, before="limit"),
    rule("POST /api/limits/{key}/consume", KEEPERS, X, before="limit", body={}),
    rule("GET /api/scale", ALL, L),
    rule("GET /api/backlog", READERS, L),
    rule("GET /api/series", READERS, L),
    # --- workers
    rule("GET /api/workers", READERS, L),
    rule(
        "GET /api/workers/{worker_id}",
        READERS,
        W,
        "/api/workers/{worker}",
        before="worker",
        is_hidden=True,
    ),
    rule("DELETE /api/workers/{worker_id}", WORKERS, W, "/api/workers/{worker}", before="worker"),
    rule(
        "POST /api/workers/{worker_id}/drain",
        ADMINS,
        W,
        "/api/workers/{worker}/drain",
        before="worker",
    ),
    rule(
        "POST /api/workers/{worker_id}/resume",
        ADMINS,
        W,
        "/api/workers/{worker}/resume",
        before="worker",
    ),
    rule(
        "POST /api/workers/{worker_id}/quarantine",
        ADMINS,
        W,
        "/api/workers/{worker}/quarantine",
        before="worker",
    ),
    rule("POST /api/workers", WORKERS, W, body=WORKER_BODY, answers=(201,)),
    rule(
        "POST /api/workers/{worker_id}/heartbeat",
        WORKERS,
        W,
        "/api/workers/{worker}/heartbeat",
        body=INCARNATION,
        before="worker",
    ),
    rule(
        "POST /api/workers/{worker_id}/lease",
        WORKERS,
        W,
        "/api/workers/{worker}/lease",
        body={**INCARNATION, "max": 1},
        before="worker",
    ),
    rule(
        "POST /api/workers/{worker_id}/results",
        WORKERS,
        W,
        "/api/workers/{worker}/results",
        body={**INCARNATION, "results": []},
        before="worker",
    ),
    rule(
        "POST /api/workers/{worker_id}/progress",
        WORKERS,
        W,
        "/api/workers/{worker}/progress",
        body={**INCARNATION, "items": []},
        before="worker",
    ),
    rule(
        "POST /api/workers/{worker_id}/logs",
        WORKERS,
        W,
        "/api/workers/{worker}/logs",
        body={**INCARNATION, "items": []},
        before="worker",
    ),
    rule(
        "POST /api/workers/{worker_id}/operations",
        WORKERS,
        W,
        "/api/workers/{worker}/operations",
        body={**INCARNATION, "items": []},
        before="worker",
    ),
    # --- jobs
    rule("GET /api/jobs/{job_id}", READERS, Q, "/api/jobs/{task}"),
    rule("POST /api/jobs/{job_id}/start", WORKERS, Q, "/api/jobs/{task}/start", before="task"),
    rule("POST /api/jobs/{job_id}/complete", WORKERS, Q, "/api/jobs/{job}/complete", before="job"),
    rule("POST /api/jobs/{job_id}/fail", WORKERS, Q, "/api/jobs/{job}/fail", before="job"),
    # --- workflows and runs
    rule("PUT /api/workflows/{workflow}", ADMINS, X, text=WORKFLOW, answers=(200, 201)),
    rule("POST /api/workflows/validate", READERS, A, text=WORKFLOW),
    rule("GET /api/workflows", READERS, X),
    rule("GET /api/workflows/{workflow}", READERS, X),
    rule(
        "GET /api/workflows/{workflow}/versions/{version}",
        READERS,
        X,
        "/api/workflows/{workflow}/versions/1",
    ),
    rule("POST /api/runs", SUBMITTERS, X, body={"workflow": "{workflow}"}, answers=(201,)),
    rule("GET /api/runs", READERS, X),
    rule("GET /api/runs/{run_id}", READERS, X, "/api/runs/{run}"),
    rule("POST /api/runs/{run_id}/cancel", SUBMITTERS, X, "/api/runs/{run}/cancel", before="run"),
    rule("POST /api/runs/{run_id}/pause", SUBMITTERS, X, "/api/runs/{run}/pause", before="run"),
    rule(
        "POST /api/runs/{run_id}/resume",
        SUBMITTERS,
        X,
        "/api/runs/{run}/resume",
        before="run",
        answers=(200, 409),
    ),
    rule(
        "POST /api/runs/{run_id}/retry",
        SUBMITTERS,
        X,
        "/api/runs/{run}/retry",
        before="run",
        answers=(200, 409),
    ),
    rule(
        "POST /api/runs/{run_id}/signal",
        SUBMITTERS,
        X,
        "/api/runs/{run}/signal",
        body={"name": "other"},
        before="run",
    ),
    rule(
        "POST /api/runs/{run_id}/fork",
        SUBMITTERS,
        X,
        "/api/runs/{run}/fork",
        body={"from_node": "n"},
        answers=(201,),
    ),
    rule("GET /api/runs/{run_id}/tokens", READERS, X, "/api/runs/{run}/tokens"),
    rule("GET /api/runs/{run_id}/journal", READERS, X, "/api/runs/{run}/journal"),
    rule("GET /api/runs/{run_id}/graph", READERS, X, "/api/runs/{run}/graph"),
    rule("GET /api/runs/{run_id}/scopes", READERS, X, "/api/runs/{run}/scopes"),
    # The run has opened no scope.
    rule(
        "POST /api/runs/{run_id}/scopes/{scope}/complete",
        SUBMITTERS,
        X,
        "/api/runs/{run}/scopes/1/complete",
        answers=(404,),
    ),
    rule(
        "POST /api/runs/{run_id}/scopes/{scope}/cancel",
        SUBMITTERS,
        X,
        "/api/runs/{run}/scopes/1/cancel",
        answers=(404,),
    ),
    rule(
        "POST /api/runs/{run_id}/scopes/{scope}/branches",
        SUBMITTERS,
        X,
        "/api/runs/{run}/scopes/1/branches",
        body={"items": [1]},
        answers=(404,),
    ),
    # The task is queued, so nobody holds its lease.
    rule(
        "POST /api/tasks/{task_id}/branches",
        WORKERS,
        Q,
        "/api/tasks/{task}/branches",
        body={"items": [1], "fence": 1},
        answers=(400, 409),
    ),
    # A worker reads it as well, of a function that it runs; this run is a graph.
    rule(
        "GET /api/runs/{run_id}/operations",
        READERS,
        X,
        "/api/runs/{run}/operations",
        answers=(400,),
    ),
    rule(
        "GET /api/runs/{run_id}/streams/{name}",
        READERS,
        X,
        "/api/runs/{run}/streams/log",
        answers=(400,),
    ),
    rule(
        "GET /api/runs/{run_id}/replies/{key}",
        READERS,
        X,
        "/api/runs/{run}/replies/k",
        answers=(400,),
    ),
    rule("GET /api/waits", READERS, X),
    rule("GET /api/runs/activity", READERS, X, "/api/runs/activity?run={run}"),
    rule("GET /api/standings", READERS, X, "/api/standings?run={run}"),
    # The queue of the task is looked at first; here it is a task that does not belong to a run.
    rule(
        "PUT /api/runs/{run_id}/artifacts/{artifact}",
        WORKERS,
        Q,
        "/api/runs/{run}/artifacts/a?task_id={task}&fence=1",
        text="content",
        answers=(400,),
    ),
    rule("GET /api/runs/{run_id}/artifacts", READERS, X, "/api/runs/{run}/artifacts"),
    rule(
        "GET /api/runs/{run_id}/artifacts/{artifact}",
        READERS,
        X,
        "/api/runs/{run}/artifacts/a",
        answers=(404,),
    ),
    # --- schedules
    rule(
        "PUT /api/schedules/{name}",
        SUBMITTERS,
        Q,
        "/api/schedules/{schedule}",
        body={"every_ms": 3_600_000, "task": {"name": "work", "queue": "{queue}"}},
        answers=(200, 201),
    ),
    rule(
        "DELETE /api/schedules/{name}",
        SUBMITTERS,
        Q,
        "/api/schedules/{schedule}",
        before="schedule",
    ),
    rule(
        "POST /api/schedules/{name}/pause",
        SUBMITTERS,
        Q,
        "/api/schedules/{schedule}/pause",
        before="schedule",
    ),
    rule(
        "POST /api/schedules/{name}/resume",
        SUBMITTERS,
        Q,
        "/api/schedules/{schedule}/resume",
        before="schedule",
    ),
    rule(
        "POST /api/schedules/{name}/run",
        SUBMITTERS,
        Q,
        "/api/schedules/{schedule}/run",
        before="schedule",
    ),
    rule(
        "POST /api/schedules/{name}/backfill",
        SUBMITTERS,
        Q,
        "/api/schedules/{schedule}/backfill",
        body={"from_ms": 0, "to_ms": 1_000, "dry_run": True},
        before="schedule",
    ),
    rule(
        "POST /api/schedules/sync",
        SUBMITTERS,
        Q,
        body={
            "source": "app",
            "items": [
                {
                    "name": "{schedule}",
                    "schedule": {
                        "every_ms": 3_600_000,
                        "task": {"name": "work", "queue": "{queue}"},
                    },
                }
            ],
        },
    ),
    rule("GET /api/schedules", READERS, L),
    rule("GET /api/schedules/{name}", READERS, Q, "/api/schedules/{schedule}", before="schedule"),
    rule(
        "GET /api/schedules/{name}/next",
        READERS,
        Q,
        "/api/schedules/{schedule}/next",
        before="schedule",
    ),
    rule("POST /api/schedules/preview", READERS, A, body={"cron": "0 3 * * *"}),
    # --- pushed queues
    rule(
        "PUT /api/queues/{queue}/push",
        ADMINS,
        X,
        "/api/queues/{pushed_queue}/push",
        body={"url": "http://receiver.invalid/"},
        answers=(200, 201),
    ),
    rule(
        "GET /api/queues/{queue}/push",
        ADMINS,
        X,
        "/api/queues/{pushed_queue}/push",
        before="pushed_queue",
    ),
    rule(
        "DELETE /api/queues/{queue}/push",
        ADMINS,
        X,
        "/api/queues/{pushed_queue}/push",
        before="pushed_queue",
    ),
    # --- webhooks
    rule("GET /api/webhooks", ADMINS, X),
    rule(
        "PUT /api/webhooks/{name}",
        ADMINS,
        X,
        "/api/webhooks/{webhook}",
        body={"url": "http://receiver.invalid/"},
        answers=(200, 201),
    ),
    rule("GET /api/webhooks/{name}", ADMINS, X, "/api/webhooks/{webhook}", before="webhook"),
    rule(
        "POST /api/webhooks/{name}/test",
        ADMINS,
        X,
        "/api/webhooks/{webhook}/test",
        before="webhook",
    ),
    rule("DELETE /api/webhooks/{name}", ADMINS, X, "/api/webhooks/{webhook}", before="webhook"),
    # --- values and locks
    rule("GET /api/memory", ALL, X),
    rule("PUT /api/memory/{key}", KEEPERS, X, body={"value": 1}),
    rule("GET /api/memory/{key}", ALL, X, before="key"),
    rule("DELETE /api/memory/{key}", KEEPERS, X, before="key"),
    rule("GET /api/locks", ALL, X),
    rule("GET /api/locks/{name}", ALL, X, "/api/locks/{lock}"),
    rule(
        "POST /api/locks/{name}/acquire",
        KEEPERS,
        X,
        "/api/locks/{lock}/acquire",
        body={"owner": "o"},
    ),
    rule(
        "POST /api/locks/{name}/renew",
        KEEPERS,
        X,
        "/api/locks/{lock}/renew",
        body={"owner": "o", "fence": 1},
        answers=(200, 409),
    ),
    rule(
        "POST /api/locks/{name}/release",
        KEEPERS,
        X,
        "/api/locks/{lock}/release",
        body={"owner": "o", "fence": 1},
        answers=(200, 409),
    ),
    # --- events
    rule("GET /api/events", READERS, L, "/api/events?last=1000"),
    # --- services
    rule("GET /api/services", READERS, L),
    rule("GET /api/services/{name}", READERS, S, "/api/services/{service}"),
    rule("PUT /api/services/{name}", ADMINS, S, "/api/services/{service}", body={"pinned": True}),
    rule(
        "POST /api/services/{name}/members/{worker_id}/drain",
        ADMINS,
        M,
        "/api/services/{service}/members/{worker}/drain",
        body={"draining": False},
        before="member",
    ),
    rule(
        "POST /api/services/{name}/members",
        WORKERS,
        M,
        "/api/services/{service}/members",
        body=JOINED,
    ),
    rule(
        "POST /api/services/{name}/members/{worker_id}/heartbeat",
        WORKERS,
        M,
        "/api/services/{service}/members/{worker}/heartbeat",
        body=MEMBER_BEAT,
        before="member",
    ),
    rule(
        "DELETE /api/services/{name}/members/{worker_id}",
        WORKERS,
        M,
        "/api/services/{service}/members/{worker}",
        before="member",
    ),
    rule(
        "PUT /api/services/{name}/shards/{shard}/checkpoint",
        WORKERS,
        S,
        "/api/services/{service}/shards/0/checkpoint",
        body={"epoch": 999, "value": 1},
        answers=(200, 409),
    ),
    rule(
        "GET /api/services/{name}/shards/{shard}/checkpoint",
        WORKERS,
        S,
        "/api/services/{service}/shards/0/checkpoint",
    ),
    # --- tokens and browsers
    rule("GET /api/tokens", ADMINS, X),
    rule("POST /api/tokens", ADMINS, X, body={"scopes": ["admin"]}, answers=(201,)),
    rule("DELETE /api/tokens/{token_id}", ADMINS, X, "/api/tokens/{token}", before="token"),
    rule("GET /api/me", READERS, A),
    rule("POST /api/login", (), O, body={"token": "{secret}"}),
    rule("POST /api/logout", (), O),
    # --- the coordinator as a whole
    rule("GET /api/overview", READERS, L),
    rule("GET /api/system", READERS, X),
    rule("GET /metrics", READERS, L),
    rule("GET /health", (), O),
    rule("GET /health/live", (), O),
    rule("GET /health/ready", (), O),
)

# Pages that no list of endpoints has. They show nothing but what every installation has.
PAGES: tuple[Rule, ...] = (
    rule("GET /", (), O),
    rule("GET /docs", (), O),
    rule("GET /openapi.json", (), O),
    rule("GET /ws", (), O, answers=(400,)),
)

COORDINATOR = "coordinator:{queue}"
HELD = {"workerId": "{socket_worker}", "taskId": "t"}

MESSAGES: tuple[Rule, ...] = (
    rule("register_worker", WORKERS, W, "coordinator:{own_queue}", body={"workerId": "{worker}"}),
    rule("heartbeat", WORKERS, W, COORDINATOR, body={"workerId": "{socket_worker}"}),
    rule("unregister_worker", WORKERS, W, COORDINATOR, body={"workerId": "{socket_worker}"}),
    rule("task_complete", WORKERS, W, COORDINATOR, body=HELD),
    rule("task_failed", WORKERS, W, COORDINATOR, body=HELD),
    rule("report_progress", WORKERS, W, COORDINATOR, body={**HELD, "progress": 1}),
    rule("assign_task", SUBMITTERS, Q, COORDINATOR, body={"taskId": "t", "name": "work"}),
    # An own worker that is not there, since the answer would wait for the end of the task.
    rule(
        "process_task",
        SUBMITTERS,
        Q,
        "worker:{pinned_worker}",
        body={"taskId": "t"},
        is_hidden=True,
    ),
    rule("get_status", READERS, Q, COORDINATOR),
    rule("get_state", READERS, L, "worker:{foreign_worker}"),
    rule("subscribe", READERS, L, COORDINATOR, body={"types": ["task-*"], "after": 0}),
    rule("unsubscribe", READERS, A, COORDINATOR),
    rule(
        "stream_open",
        WORKERS,
        W,
        COORDINATOR,
        body={"worker_id": "{worker}", "queues": ["{own_queue}"]},
    ),
    rule(
        "stream_resume",
        WORKERS,
        W,
        COORDINATOR,
        body={"worker_id": "{worker}", "incarnation": "{incarnation}"},
    ),
    # About the stream of the same socket, which is not open here: "invalid" is not a refusal.
    rule("stream_credit", WORKERS, A, COORDINATOR, body={"free": 1, "taken": 0}),
    rule("stream_results", WORKERS, A, COORDINATOR, body={"results": []}),
    rule("stream_progress", WORKERS, A, COORDINATOR, body={"items": []}),
    rule("stream_logs", WORKERS, A, COORDINATOR, body={"items": []}),
    rule("stream_operations", WORKERS, A, COORDINATOR, body={"items": []}),
    rule("stream_beat", WORKERS, A, COORDINATOR, body={}),
)
