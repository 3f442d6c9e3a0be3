"""What programs keep with the coordinator: values, changes that nobody loses, and news of them."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rota import Invalid, Rota, Unavailable, VersionConflict
from rota.messages.kv import MemoryPut
from rota.sdk import kv
from rota.sdk.client import kv_calls
from rota.testing import TestCoordinator
from tests.sdk.serving import PATIENCE_S, Server


@dataclass
class Point:
    x: int
    y: int


# --- one value ----------------------------------------------------------------------------------


def test_a_value_is_put_got_and_deleted(app: Rota) -> None:
    kept = app.memory.put("k", {"a": [1, None]})

    assert app.memory.get("k") == {"a": [1, None]}
    assert app.memory.entry("k") == kept
    assert kept.expires_at_ms is None
    assert app.memory.delete("k") is True
    assert app.memory.delete("k") is False
    assert app.memory.get("k") is None
    assert app.memory.get("k", 5) == 5
    assert app.memory.entry("k") is None


async def test_a_value_is_put_got_and_deleted_on_a_loop(app: Rota) -> None:
    kept = await app.memory.aput("k", Point(1, 2))

    assert await app.memory.aget("k") == {"x": 1, "y": 2}
    assert await app.memory.aentry("k") == kept
    assert await app.memory.adelete("k") is True
    assert await app.memory.adelete("k") is False
    assert await app.memory.aget("k", 5) == 5


def test_a_value_that_is_null_is_not_the_same_as_none_at_all(app: Rota) -> None:
    app.memory.put("k", None)

    entry = app.memory.entry("k")

    assert entry is not None
    assert entry.value is None


def test_a_value_is_kept_for_its_time(app: Rota) -> None:
    kept = app.memory.put("k", 1, ttl_s=2.5)

    assert kept.expires_at_ms == kept.updated_at_ms + 2_500


def test_a_put_on_condition_is_refused_when_the_value_has_changed(app: Rota) -> None:
    first = app.memory.put("k", 1, if_version=0)
    second = app.memory.put("k", 2, if_version=first.version)

    for late in (0, first.version):
        with pytest.raises(VersionConflict):
            app.memory.put("k", 3, if_version=late)
        with pytest.raises(VersionConflict):
            app.memory.delete("k", if_version=late)

    assert app.memory.get("k") == 2
    assert app.memory.delete("k", if_version=second.version)


def test_what_cannot_be_written_as_json_is_refused_here(app: Rota) -> None:
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        app.memory.put("k", object())


@pytest.mark.parametrize("key", ["\0", "k" * 501])
def test_a_key_that_cannot_be_kept_is_refused(app: Rota, key: str) -> None:
    with pytest.raises(Invalid, match="key"):
        app.memory.put(key, 1)


def test_only_a_put_without_a_condition_may_be_said_twice() -> None:
    plain = kv_calls.put_value("k", MemoryPut(value=Raw(b"1")))
    on_condition = kv_calls.put_value("k", MemoryPut(value=Raw(b"1"), if_version=0))

    assert plain.is_repeatable
    assert not on_condition.is_repeatable
    assert not kv_calls.delete_value("k").is_repeatable


# --- changes that nobody loses ------------------------------------------------------------------


def test_an_update_starts_from_the_value_or_the_default(app: Rota) -> None:
    assert app.memory.update("n", lambda n: n + 1, default=0) == 1
    assert app.memory.update("n", lambda n: n + 1, default=0) == 2
    kept = app.memory.entry("n")
    assert kept is not None
    assert kept.value == 2


def test_of_many_updates_at_once_each_one_counts(app: Rota) -> None:
    def add(_: int) -> None:
        for _ in range(5):
            app.memory.update("n", lambda n: n + 1, default=0)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(add, range(6)))

    assert app.memory.get("n") == 30


async def test_of_many_updates_on_a_loop_each_one_counts(app: Rota) -> None:
    async def add() -> None:
        await app.memory.aupdate("n", lambda n: n + 1, default=0)

    await asyncio.gather(*(add() for _ in range(20)))

    assert await app.memory.aget("n") == 20


def test_an_update_that_never_comes_first_ends(app: Rota, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "MOST_TRIES", 3)
    monkeypatch.setattr(kv, "LONGEST_PAUSE_S", 0.0)
    calls = []

    def slow(value: Any) -> int:
        calls.append(value)
        app.memory.put("n", len(calls))
        return -1

    with pytest.raises(VersionConflict):
        app.memory.update("n", slow)

    assert calls == [None, 1, 2]


def test_an_update_whose_function_fails_changes_nothing(app: Rota) -> None:
    app.memory.put("n", 0)

    with pytest.raises(ZeroDivisionError):
        app.memory.update("n", lambda n: 1 / n)

    assert app.memory.get("n") == 0


# --- many values --------------------------------------------------------------------------------


def test_values_are_listed_by_prefix_or_pattern(app: Rota) -> None:
    for key in ("a/1", "a/2", "b/1", "a[x]/1"):
        app.memory.put(key, key)

    def keys(*arguments: Any, **options: Any) -> list[str]:
        return [entry.key for entry in app.memory.list(*arguments, **options)]

    assert keys() == ["a/1", "a/2", "a[x]/1", "b/1"]
    assert keys("a/") == ["a/1", "a/2"]
    assert keys("a[") == ["a[x]/1"]
    assert keys(pattern="?/1") == ["a/1", "b/1"]
    assert keys("a/", pattern="[^1]") == ["a/2"]


async def test_a_scan_goes_on_to_the_last_page(app: Rota) -> None:
    keys = [f"{number:04}" for number in range(205)]
    await asyncio.gather(*(app.memory.aput(key, 0) for key in keys))

    assert [entry.key for entry in app.memory.scan()] == keys
    assert [entry.key async for entry in app.memory.ascan()] == keys
    assert [entry.key for entry in await app.memory.alist("00")] == keys[:100]


def test_a_namespace_has_its_own_keys(app: Rota) -> None:
    cache = app.memory.namespace("cache")
    odd = cache.namespace("a*b")

    cache.put("k", 1)
    odd.put("k", 2)
    app.memory.put("k", 3)
    app.memory.put("cache/axb/k", 4)

    assert (cache.get("k"), odd.get("k"), app.memory.get("k")) == (1, 2, 3)
    assert app.memory.get("cache/a*b/k") == 2
    assert [entry.key for entry in odd.list()] == ["k"]
    assert [entry.key for entry in odd.list(pattern="*")] == ["k"]
    assert [entry.key for entry in cache.list()] == ["a*b/k", "axb/k", "k"]
    assert cache.update("k", lambda value: value + 10) == 11
    assert cache.delete("k")
    assert app.memory.get("k") == 3
    assert "cache/" in repr(cache)


# --- news ---------------------------------------------------------------------------------------


def test_a_watch_tells_what_happens_to_its_keys(app: Rota) -> None:
    cache = app.memory.namespace("cache")
    before = app.memory.put("cache/a", 0)
    changes = iter(cache.watch(after=0))
    assert next(changes).version == before.version

    app.memory.put("other", 1)
    set_one = cache.put("b", 1)
    cache.delete("b")

    first, second = islice(changes, 2)
    assert (first.key, first.is_deleted, first.version) == ("b", False, set_one.version)
    assert (second.key, second.is_deleted, second.version) == ("b", True, set_one.version)
    assert first.seq < second.seq
    again = next(iter(cache.watch(after=first.seq)))
    assert again == second


async def test_a_watch_waits_for_what_comes_next(app: Rota) -> None:
    changes = aiter(app.memory.watch("jobs/"))
    waiting = asyncio.ensure_future(anext(changes))
    # It begins where the log ends at its first look, so the news must come after that.
    while not waiting.done():
        await app.memory.aput("jobs/1", {"state": "done"})

    change = await waiting

    assert (change.key, change.is_deleted) == ("jobs/1", False)


# --- wherever the coordinator is ----------------------------------------------------------------


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Rota]:
    with Rota(f"sqlite:///{tmp_path / 'own.db'}") as one:
        yield one


async def test_an_embedded_coordinator_keeps_values_too(embedded: Rota) -> None:
    embedded.memory.put("k", 1)
    await embedded.memory.aupdate("k", lambda n: n + 1)

    assert embedded.memory.get("k") == 2
    assert [entry.key for entry in embedded.memory.list("k")] == ["k"]
    assert next(iter(embedded.memory.watch(after=0))).key == "k"


def test_the_coordinator_of_a_test_keeps_values_for_as_long_as_its_clock_says() -> None:
    app = Rota("http://127.0.0.1:1")
    with TestCoordinator() as coordinator:
        coordinator.attach(app)
        app.memory.put("k", 1, ttl_s=60)

        coordinator.clock.advance(ms=59_999)
        assert app.memory.get("k") == 1
        coordinator.clock.advance(ms=1)
        assert app.memory.get("k") is None


def test_values_outlive_the_coordinator(server: Server, app: Rota) -> None:
    app.memory.put("k", 1)

    server.stop()
    with pytest.raises(Unavailable):
        app.memory.get("k")
    server.start()

    assert app.memory.get("k") == 1


def test_a_watch_outlives_the_coordinator(server: Server, app: Rota) -> None:
    changes = iter(app.memory.watch(after=0))
    app.memory.put("k", 1)
    assert next(changes).key == "k"
    found: list[str] = []
    watching = threading.Thread(target=lambda: found.append(next(changes).key))
    watching.start()

    server.stop()
    server.start()
    app.memory.put("later", 1)

    watching.join(PATIENCE_S)
    assert found == ["later"]
