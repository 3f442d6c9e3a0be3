"""Flow control from the SDK, with a real worker, on both stores."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota import (
    Backoff,
    Batch,
    Concurrency,
    Debounce,
    Rate,
    RateLimited,
    Rota,
    RotaError,
    TaskCancelled,
    TaskHandle,
    Unique,
)
from rota.messages.limits import QueuePatch
from rota.sdk.client import limit_calls, schedule_calls
from tests.databases.schemas import schemas, url
from tests.sdk.serving import PATIENCE_S, Server, working

NO_WAIT = Backoff(kind="none")


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rota]:
    """An app that speaks to a coordinator, once on each store."""
    settings: dict[str, str] = {}
    if request.param == "postgres":
        settings = {"store": url(), "postgres_schema": schemas.lend("sdk_flow_control")}
    with Server(tmp_path, **settings) as server, Rota(server.url) as one:
        yield one
    if request.param == "postgres":
        schemas.take_back()


class Inside:
    """How many handlers of each key are at work at once, at the most."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._together = threading.Event()

    def run(self, key: str) -> str:
        with self._lock:
            self._now[key] += 1
            self.most[key] = max(self.most[key], self._now[key])
        self._together.wait(0.02)  # long enough for another handler to be seen beside this one
        with self._lock:
            self._now[key] -= 1
        return key


def test_limits_tenants_and_unique_tasks(app: Rota) -> None:
    inside = Inside()
    told = iter([True])

    @app.task(concurrency=Concurrency("user:{user}", limit=1), fair_key="{user}")
    def serve(user: str) -> str:
        return inside.run(user)

    @app.task(rate=Rate("api", limit=1_000, burst=1_000), max_attempts=1)
    def call() -> str:
        if next(told, False):
            raise RateLimited(1)
        return "answered"

    @app.task(unique=Unique(by=("name", "payload"), on_conflict="return"))
    def once(number: int) -> int:
        return number

    @app.task(debounce=Debounce(key="d", wait_ms=1))
    def late(number: int) -> int:
        return number

    first, second = once.enqueue(1), once.enqueue(1)
    served = [serve.enqueue(user) for user in ("ann", "bob") * 6]
    called, debounced = call.enqueue(), late.enqueue(7)
    with working(app, concurrency=8):
        results = [one.result(timeout=PATIENCE_S) for one in served]
        others = [one.result(timeout=PATIENCE_S) for one in (called, debounced, first)]

    assert results == ["ann", "bob"] * 6
    assert inside.most == {"ann": 1, "bob": 1}
    assert others == ["answered", 7, 1]
    assert first.id == second.id


def test_batches_groups_chains_and_settings_of_queues(app: Rota) -> None:
    sizes: list[int] = []

    @app.task(batch=Batch(size=3, wait_ms=50))
    def gather(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return [2 * item for item in items]

    @app.task
    def add(number: int, plus: int = 1) -> int:
        return number + plus

    @app.task
    def total(results: list[int]) -> int:
        return sum(results)

    changed = app.client.run(
        limit_calls.change_queue("default", QueuePatch(aging_ms=1_000, fairness="time"))
    )
    many = [gather.enqueue(number) for number in range(6)]
    with working(app, concurrency=8):
        doubled = [one.result(timeout=PATIENCE_S) for one in many]
        group = app.group([add.bind(number) for number in range(4)], on_success=total)
        chain = app.chain(add.bind(1), add.partial(plus=10))
        ends = group.callback_result(timeout=PATIENCE_S), chain.result(timeout=PATIENCE_S)

    assert (changed.aging_ms, changed.fairness) == (1_000, "time")
    assert doubled == [0, 2, 4, 6, 8, 10]
    assert sum(sizes) == 6
    assert ends == (10, 12)


def test_full_keys_kept_slots_windows_and_expiry(app: Rota) -> None:
    seen: list[str] = []
    fails = iter([True])

    @app.task(concurrency=Concurrency("one", on_full="reject"))
    def rejected() -> str:
        return "ran"

    @app.task(concurrency=Concurrency("newest", on_full="cancel_queued"))
    def newest(number: int) -> int:
        return number

    @app.task(concurrency=Concurrency("line", hold="task"), max_attempts=2, backoff=NO_WAIT)
    def line(name: str) -> str:
        seen.append(name)
        if name == "first" and next(fails, False):
            raise ConnectionError("once")
        return name

    @app.task(rate=Rate("window", limit=2, per_ms=100, mode="window"))
    def windowed(number: int) -> int:
        return number

    @app.task(start_within_ms=1, on_expiry="discard")
    def fleeting() -> None: ...

    held = rejected.enqueue()
    with pytest.raises(RotaError) as refused:
        rejected.enqueue()
    replaced, kept = newest.enqueue(1), newest.enqueue(2)
    in_line = [line.enqueue("first"), line.enqueue("second")]
    discarded = fleeting.using(queue="nobody").enqueue()
    with pytest.raises(TaskCancelled):
        discarded.result(timeout=PATIENCE_S)
    with working(app, concurrency=8, queues=["default"]):
        starts = [windowed.enqueue(number) for number in range(5)]
        handles: list[TaskHandle[Any]] = [held, kept, *in_line, *starts]
        results = [one.result(timeout=PATIENCE_S) for one in handles]

    assert refused.value.code == "key_busy"
    assert replaced.status() == "cancelled"
    assert results == ["ran", 2, "first", "second", *range(5)]
    assert seen == ["first", "first", "second"], "the slot is kept through the back-off"


def test_schedules_from_code_fire_once_for_each_run(app: Rota) -> None:
    @app.schedule("0 3 * * *", timezone="Australia/Lord_Howe", name="nightly")
    @app.task
    def report() -> str:
        return "reported"

    app.deploy_schedules()
    client = app.client
    fired = client.run(schedule_calls.run_schedule("nightly"))
    with working(app):
        assert fired.task_id is not None
        done = app.handle(fired.task_id).result(timeout=PATIENCE_S)
    client.run(schedule_calls.pause_schedule("nightly", note="holidays"))
    shown = client.run(schedule_calls.get_schedule("nightly"))

    assert (done, fired.outcome) == ("reported", "fired")
    assert [one.task_id for one in shown.firings] == [fired.task_id]
    assert (shown.paused, shown.note) == (True, "holidays")
