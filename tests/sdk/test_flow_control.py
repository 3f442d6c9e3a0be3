"""Flow control from the SDK, with a real worker, on both stores."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import Batch, Concurrency, Debounce, Rate, RateLimited, Rota, Unique
from rota.messages.limits import QueuePatch
from rota.sdk.client import limit_calls
from tests.databases.schemas import schemas, url
from tests.sdk.serving import PATIENCE_S, Server, working


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
