"""Flow control rule by rule, over real HTTP and on both stores, as a caller meets it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from rota.store.leadership import LeadershipView
from rota.store.postgres.elections import PostgresElections
from tests.databases.schemas import schemas, url
from tests.gateways.serving import Api, Json, TurnedClock, held, served

MINUTE_MS = 60_000
START_MS = 1_800_000_000_000
QUEUE = "/api/queues/default"


@pytest.fixture(params=["sqlite", "postgres"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    """A served coordinator, once on each store."""
    if request.param == "sqlite":
        async with served(tmp_path, zmq_port=None) as api:
            yield api
        return
    schema = schemas.lend("flow_control")
    with turned_elections() as clocks:
        async with served(tmp_path, store=url(), postgres_schema=schema, zmq_port=None) as api:
            clocks.append(api.clock)
            yield api
    schemas.take_back()


@contextmanager
def turned_elections() -> Iterator[list[TurnedClock]]:
    """Let coordinators go by a turned clock, the last of these, instead of the database's."""
    clocks = [TurnedClock()]
    look, renew = PostgresElections.look, PostgresElections.renew

    def turned_look(self: PostgresElections) -> LeadershipView:
        return LeadershipView(leader=look(self).leader, now_ms=clocks[-1].now_ms())

    def turned_renew(self: PostgresElections, *, lease_ms: int) -> int | None:
        return None if renew(self, lease_ms=lease_ms) is None else clocks[-1].now_ms()

    with patch.multiple(PostgresElections, look=turned_look, renew=turned_renew):
        yield clocks


async def state(api: Api, task: Json) -> str:
    return str((await api.task(task["id"]))["state"])


async def settings(api: Api, **change: Any) -> Json:
    answer = await api.client.patch(QUEUE, json=change)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(api: Api, **task: Any) -> tuple[int, str]:
    answer = await api.post("/api/tasks", {"name": "work", **task})
    return answer.status_code, answer.json().get("code", "")


# --- limits ---------------------------------------------------------------------------------------


async def test_concurrency_of_several_keys_each_with_its_slots(shop: Api) -> None:
    worker = await shop.register()
    for _ in range(4):
        await shop.submit(concurrency=[{"key": "a", "limit": 3}, {"key": "b", "limit": 2}])
    await shop.submit(concurrency={"key": "a/slash", "limit": 1})

    leased = await worker.lease()
    a = (await shop.get("/api/limits/a")).json()
    slash = (await shop.get("/api/limits/a/slash")).json()

    assert len(leased) == 3
    assert (a["running"], a["waiting"], slash["running"]) == (2, 2, 1)
    assert await refused(shop, concurrency=[{"key": str(n)} for n in range(5)]) == (400, "invalid")


@pytest.mark.parametrize(("hold", "second"), [("attempt", True), ("task", False)])
async def test_hold(shop: Api, hold: str, *, second: bool) -> None:
    worker = await shop.register()
    for _ in range(2):
        await shop.submit(concurrency={"key": "k", "hold": hold}, backoff={"initial_ms": 10_000})
    (first,) = await worker.lease()
    await worker.fail(first)

    other = await worker.lease()

    assert bool(other) is second


async def test_on_full(shop: Api) -> None:
    worker = await shop.register()
    running = await shop.submit(concurrency={"key": "k"})
    (lease,) = await worker.lease()
    waiting = await shop.submit(concurrency={"key": "k", "on_full": "wait"})

    rejected = await shop.post(
        "/api/tasks", {"name": "work", "concurrency": {"key": "k", "on_full": "reject"}}
    )
    newer = await shop.submit(concurrency={"key": "k", "on_full": "cancel_queued"})
    after_queued = [await state(shop, one) for one in (running, waiting, newer)]
    newest = await shop.submit(concurrency={"key": "k", "on_full": "cancel_running"})

    assert (rejected.status_code, rejected.json()["code"]) == (409, "key_busy")
    assert rejected.json()["holder"] == running["id"]
    assert after_queued == ["running", "cancelled", "queued"]
    assert await state(shop, running) == "cancelled"
    assert await worker.lease() == [], "the worker has not let go"
    await worker.finish(lease)
    assert len(await worker.lease()) == 1
    assert {await state(shop, newer), await state(shop, newest)} == {"running", "queued"}


async def test_a_limit_is_changed_pinned_paused_and_unpinned(shop: Api) -> None:
    worker = await shop.register()
    for _ in range(5):
        await shop.submit(concurrency={"key": "k", "limit": 1})
    await worker.lease()

    paused = (await shop.client.put("/api/limits/k", json={"limit": 0})).json()
    none = await worker.lease()
    raised = (await shop.client.put("/api/limits/k", json={"limit": 3})).json()
    await shop.submit(concurrency={"key": "k", "limit": 1})
    more = await worker.lease()
    back = (await shop.delete("/api/limits/k")).json()["limit"]

    assert (paused["limit"], paused["pinned"], none) == (0, True, [])
    assert (raised["limit"], raised["running"], len(more)) == (3, 1, 2)
    assert (back["limit"], back["pinned"]) == (1, False)


async def test_rates_are_smooth_or_windows_and_cost_what_they_say(shop: Api) -> None:
    worker = await shop.register()
    for _ in range(3):
        await shop.submit(rate={"key": "s", "limit": 2, "per_ms": 1_000})
        await shop.submit(rate={"key": "w", "limit": 2, "per_ms": 1_000, "mode": "window"})
        await shop.submit(rate={"key": "c", "limit": 4, "per_ms": 1_000, "burst": 4, "cost": 3})

    starts = []
    for _ in range(4):
        starts.append([one["name"] for one in await worker.lease()])
        await shop.turn(500)

    # At 0: one of s, two of w, one of c. At 500: s and c. At 1,000: s and w. Then the last of c.
    assert [len(one) for one in starts] == [4, 2, 2, 1]


async def test_a_rate_limited_handler_closes_the_key_for_all_and_uses_no_attempt(
    shop: Api,
) -> None:
    worker = await shop.register()
    first = await shop.submit(rate={"key": "api", "limit": 1_000, "burst": 1_000}, max_attempts=1)
    (lease,) = await worker.lease()
    report = {**held(lease), "snooze_ms": 5_000, "rate_limited": True}
    await worker.report(report)
    await shop.submit(rate={"key": "api", "limit": 1_000, "burst": 1_000})

    closed = await worker.lease()
    consumed = (await shop.post("/api/limits/api/consume", {"cost": 1})).json()
    await shop.turn(5_000)
    open_again = (await shop.post("/api/limits/api/consume")).json()
    leased = await worker.lease()

    assert closed == []
    assert consumed == {"key": "api", "consumed": False, "opens_at_ms": START_MS + 5_000}
    assert open_again["consumed"] is True
    assert first["id"] in [one["task_id"] for one in leased]
    assert [one["attempt"] for one in leased] == [1, 1]


async def test_why_a_task_waits_names_its_limit(shop: Api) -> None:
    worker = await shop.register()
    for _ in range(2):
        await shop.submit(concurrency={"key": "tenant 42"})
    later = await shop.submit(rate={"key": "openai", "limit": 1, "per_ms": MINUTE_MS})
    last = await shop.submit(rate={"key": "openai", "limit": 1, "per_ms": MINUTE_MS})
    await worker.lease()

    why = (await shop.get(f"/api/tasks/{last['id']}/timeline")).json()["why"]

    assert (why["code"], why["limit_key"]) == ("rate_closed", "openai")
    assert why["opens_at_ms"] == START_MS + MINUTE_MS
    assert await state(shop, later) == "running"


# --- queues ---------------------------------------------------------------------------------------


async def test_settings_of_a_queue(shop: Api) -> None:
    worker = await shop.register()
    for _ in range(3):
        await shop.submit()
    changed = await settings(
        shop,
        max_running=1,
        max_queued=3,
        rate={"limit": 100, "burst": 100},
        fairness="time",
        weights={"a": 0.01, "b": 100},
        aging_ms=1_000,
        target_wait_ms=5_000,
        paused=False,
    )
    running = await worker.lease()
    await shop.submit()
    full = await shop.post("/api/tasks", {"name": "work"})
    unknown = await shop.client.patch(QUEUE, json={"speed": 1})
    light = await shop.client.patch(QUEUE, json={"weights": {"a": 0.001}})
    names = ("max_running", "max_queued", "rate", "fairness", "weights", "aging_ms")
    reset = await settings(shop, target_wait_ms=None, **dict.fromkeys(names))

    assert changed["weights"] == {"a": 0.01, "b": 100.0}
    assert (changed["fairness"], changed["aging_ms"]) == ("time", 1_000)
    assert len(running) == 1
    assert (full.status_code, full.json()["code"]) == (429, "queue_full")
    assert int(full.headers["retry-after"]) >= 1
    assert unknown.status_code == light.status_code == 400
    assert "speed" in unknown.text
    assert [reset[name] for name in names] == [None, None, None, "tasks", {}, None]
    assert len(await worker.lease()) == 3


async def test_tenants_share_by_their_weights(shop: Api) -> None:
    worker = await shop.register()
    await settings(shop, weights={"a": 3})
    for _ in range(12):
        await shop.submit(fair_key="a")
        await shop.submit(fair_key="b")

    leased = await worker.lease(most=8)
    page = (await shop.get(f"{QUEUE}/tenants")).json()

    tenants = {one["key"]: one for one in page["items"]}
    assert len(leased) == 8
    assert (tenants["a"]["running"], tenants["b"]["running"]) == (6, 2)
    assert (tenants["a"]["share"], tenants["a"]["weight"]) == (0.75, 3.0)


async def test_priorities_age_and_targets_are_watched(shop: Api) -> None:
    worker = await shop.register()
    await settings(shop, aging_ms=1_000, target_wait_ms=2_000)
    old = await shop.submit(priority=0)
    await shop.turn(3_000)
    await shop.submit(priority=2)
    urgent = await shop.submit(priority=10)

    missed = (await shop.get("/api/queues")).json()["items"][0]["target_missed_ms"]
    leased = await worker.lease(most=2)

    assert missed == START_MS + 3_000
    assert [one["task_id"] for one in leased] == [urgent["id"], old["id"]]


# --- unique, debounce, expiry ---------------------------------------------------------------------


async def test_unique(shop: Api) -> None:
    worker = await shop.register()
    by = {"by": ["name", "payload.user"], "while": "queued"}
    first = await shop.submit(payload={"user": 1, "n": 1}, unique=by)
    again = await shop.submit(payload={"user": 1, "n": 2}, unique=by)
    other = await shop.submit(payload={"user": 2}, unique=by)
    await worker.lease()
    started = await shop.submit(payload={"user": 1}, unique=by)
    timed = await shop.submit(unique={"key": "t", "for_ms": 1_000})
    code = await refused(shop, unique={"key": "t", "on_conflict": "reject"})
    replaced = await shop.submit(payload=7, unique={"key": "t", "on_conflict": "replace"})
    await shop.turn(1_000)
    after = await shop.submit(unique={"key": "t"})

    assert (again["id"], again["duplicate"]) == (first["id"], True)
    assert len({first["id"], other["id"], started["id"]}) == 3
    assert code == (409, "unique_conflict")
    assert (replaced["id"], (await shop.task(timed["id"]))["payload"]) == (timed["id"], 7)
    assert after["id"] != timed["id"]


async def test_debounce(shop: Api) -> None:
    kept: dict[str, Json] = {}
    for keep in ("first", "last"):
        debounce = {"key": keep, "wait_ms": 1_000, "max_wait_ms": 1_500, "keep": keep}
        kept[keep] = await shop.submit(payload=1, debounce=debounce)
    shop.clock.turn(900)
    for keep in ("first", "last"):
        debounce = {"key": keep, "wait_ms": 1_000, "max_wait_ms": 1_500, "keep": keep}
        await shop.submit(payload=2, debounce=debounce)
    await shop.turn(500)
    early = [await state(shop, one) for one in kept.values()]
    await shop.turn(100)

    assert early == ["scheduled", "scheduled"]
    assert [await state(shop, one) for one in kept.values()] == ["queued", "queued"]
    assert [(await shop.task(one["id"]))["payload"] for one in kept.values()] == [1, 2]


async def test_what_does_not_start_in_time_fails_or_is_discarded(shop: Api) -> None:
    fails = await shop.submit(start_within_ms=1_000)
    goes = await shop.submit(start_within_ms=1_000, on_expiry="discard")
    await shop.turn(2_000)

    assert [await state(shop, one) for one in (fails, goes)] == ["failed", "cancelled"]


# --- schedules ------------------------------------------------------------------------------------


async def put(api: Api, name: str = "s", **body: Any) -> Json:
    whole = {"task": {"name": "clean"}, **body}
    answer = await api.client.put(f"/api/schedules/{name}", json=whole)
    assert answer.status_code in {200, 201}, answer.text
    return answer.json()


async def firings(api: Api, name: str = "s") -> list[tuple[int, str]]:
    view = (await api.get(f"/api/schedules/{name}")).json()
    return [((one["nominal_ms"] - START_MS) // 1_000, one["outcome"]) for one in view["firings"]]


async def next_times(api: Api, **body: Any) -> list[int]:
    whole = {"task": {"name": "clean"}, **body}
    answer = await api.post("/api/schedules/preview?count=3", whole)
    assert answer.status_code == 200, answer.text
    return [(one - START_MS) // 1_000 for one in answer.json()["items"]]


async def test_specs_of_schedules(shop: Api) -> None:
    """The clock stands at 08:00 UTC on a Friday in January 2027."""
    assert await next_times(shop, every_ms=10_000, offset_ms=3_000) == [3, 13, 23]
    assert await next_times(shop, at_ms=[START_MS + 5_000, START_MS + 9_000]) == [5, 9]
    assert await next_times(shop, cron=["0 9 * * *", "30 8 * * *"]) == [1_800, 3_600, 88_200]
    assert await next_times(shop, every_ms=MINUTE_MS, exclude=["2 8 * * *"]) == [60, 180, 240]
    assert await next_times(shop, cron="0 10 * * *", timezone="Europe/Berlin") == [
        3_600,
        3_600 + 86_400,
        3_600 + 2 * 86_400,
    ]
    bounded = await put(
        shop,
        every_ms=10_000,
        starts_at_ms=START_MS + 15_000,
        ends_at_ms=START_MS + 100_000,
        max_firings=2,
        overlap="allow",
    )
    for _ in range(6):
        await shop.turn(10_000)

    assert bounded["next_at_ms"] == START_MS + 20_000
    assert await firings(shop) == [(30, "fired"), (20, "fired")]


@pytest.mark.parametrize(
    ("missed", "outcomes"),
    [
        ("last", [(180, "fired"), (120, "skipped_missed")]),
        ("skip", [(180, "skipped_missed")]),
        ("all", [(180, "fired"), (120, "fired"), (60, "fired")]),
    ],
)
async def test_missed_times(shop: Api, missed: str, outcomes: list[tuple[int, str]]) -> None:
    await put(shop, every_ms=MINUTE_MS, missed=missed, overlap="allow")
    await shop.turn(3 * MINUTE_MS + 40_000)
    for _ in range(3):
        await shop.turn(0)

    assert await firings(shop) == outcomes


@pytest.mark.parametrize(
    ("overlap", "second", "states"),
    [
        ("skip", "skipped_overlap", ["running"]),
        ("queue_one", "queued", ["running"]),
        ("queue_all", "queued", ["running"]),
        ("cancel_running", "fired", ["cancelled", "queued"]),
        ("allow", "fired", ["running", "queued"]),
    ],
)
async def test_overlaps(shop: Api, overlap: str, second: str, states: list[str]) -> None:
    worker = await shop.register(heartbeat_interval_ms=600_000)
    await put(shop, every_ms=MINUTE_MS, overlap=overlap)
    await shop.turn(MINUTE_MS)
    await worker.lease()
    await shop.turn(MINUTE_MS)

    tasks = (await shop.get("/api/tasks", params={"name": "clean"})).json()["items"]
    assert (await firings(shop))[0] == (120, second)
    assert [one["state"] for one in reversed(tasks)] == states


async def test_jitter_pauses_runs_and_backfills(shop: Api) -> None:
    jittered = await put(shop, "j", every_ms=MINUTE_MS, jitter_ms=30_000)
    again = await put(shop, "j", every_ms=MINUTE_MS, jitter_ms=30_000)
    await put(shop, every_ms=MINUTE_MS, overlap="allow")
    paused = (await shop.post("/api/schedules/s/pause", {"note": "holidays"})).json()
    await shop.turn(5 * MINUTE_MS)
    silent = await firings(shop)
    run = (await shop.post("/api/schedules/s/run")).json()
    span = {"from_ms": START_MS, "to_ms": START_MS + 4 * MINUTE_MS}
    counted = (await shop.post("/api/schedules/s/backfill", {**span, "dry_run": True})).json()
    resumed = (await shop.post("/api/schedules/s/resume")).json()
    filled = (await shop.post("/api/schedules/s/backfill", {**span, "overlap": "allow"})).json()
    after = {"count": 2, "after_ms": START_MS + 10 * MINUTE_MS}
    times = (await shop.get("/api/schedules/s/next", params=after)).json()["items"]

    assert 0 <= jittered["next_at_ms"] - jittered["next_nominal_ms"] <= 30_000
    assert again["next_at_ms"] == jittered["next_at_ms"]
    assert (paused["paused"], paused["note"], silent) == (True, "holidays", [])
    assert run["outcome"] == "fired"
    assert counted == filled
    assert counted["count"] in {3, 4}
    assert resumed["paused"] is False
    assert times == [START_MS + 11 * MINUTE_MS, START_MS + 12 * MINUTE_MS]


async def test_a_schedule_gives_times_and_stops_after_failures(shop: Api) -> None:
    worker = await shop.register(heartbeat_interval_ms=600_000)
    task = {"name": "clean", "max_attempts": 1, "payload": {"a": 1}}
    await put(shop, every_ms=MINUTE_MS, pause_on_failure=2, with_times=True, task=task)
    payloads = []
    for ok in (True, False, False):
        await shop.turn(MINUTE_MS)
        (lease,) = await worker.lease()
        payloads.append(lease["payload"])
        await (worker.finish(lease) if ok else worker.fail(lease))
    await shop.turn(MINUTE_MS)

    view = (await shop.get("/api/schedules/s")).json()
    assert payloads[0]["scheduled_for_ms"] == START_MS + MINUTE_MS
    assert payloads[1]["previous_success_ms"] == START_MS + MINUTE_MS
    assert (view["paused"], view["failures"]) == (True, 2)


async def test_schedules_of_code_are_synced_pinned_and_orphaned(shop: Api) -> None:
    def body(every_ms: int, *names: str) -> Json:
        spec = {"every_ms": every_ms, "task": {"name": "clean"}}
        return {"source": "app", "items": [{"name": one, "schedule": spec} for one in names]}

    made = (await shop.post("/api/schedules/sync", body(MINUTE_MS, "a", "b"))).json()
    same = (await shop.post("/api/schedules/sync", body(MINUTE_MS, "a", "b"))).json()
    await put(shop, "a", every_ms=2 * MINUTE_MS)
    last = (await shop.post("/api/schedules/sync", body(3 * MINUTE_MS, "a"))).json()
    views = {one["name"]: one for one in (await shop.get("/api/schedules")).json()["items"]}

    assert (made["changed"], same["unchanged"]) == (["a", "b"], ["a", "b"])
    assert (last["pinned"], last["orphaned"]) == (["a"], ["b"])
    assert (views["a"]["every_ms"], views["a"]["pinned"]) == (2 * MINUTE_MS, True)
    assert views["b"]["orphaned"] is True
