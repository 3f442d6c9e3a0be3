"""Unique and debounced tasks in the SDK: typed options, keys that name arguments, and handles."""

from collections.abc import Iterator

import pytest

from rota import Debounce, Rota, TaskCancelled, Unique, UniqueConflict
from rota.core.tasks.model import TaskState
from rota.errors import Invalid
from rota.testing import TestCoordinator

app = Rota("http://127.0.0.1:1")
done: list[object] = []


@app.task(unique=Unique(key="sync:{user_id}", on_conflict="reject"))
def sync(user_id: int, mode: str = "fast") -> int:
    done.append(user_id)
    return user_id


@app.task(unique={"by": ["name", "payload.user"], "while": "queued"})
def greet(user: str) -> str:
    done.append(user)
    return user


@app.task(debounce=Debounce(key="index:{page[id]}:{depth}", wait_ms=1_000))
def index(page: dict[str, int], depth: int = 3) -> None:
    done.append(page)


@app.task(start_within_ms=1_000, on_expiry="discard")
def suggest(text: str) -> str:
    return text


@pytest.fixture
def coordinator() -> Iterator[TestCoordinator]:
    done.clear()
    with TestCoordinator() as one:
        one.attach(app)
        yield one


def test_a_key_names_the_arguments_of_the_call(coordinator: TestCoordinator) -> None:
    sync.enqueue(1)
    sync.enqueue(user_id=2)

    with pytest.raises(UniqueConflict) as refusal:
        sync.enqueue(1, mode="full")

    assert refusal.value.facts["state"] == "queued"
    coordinator.drain()
    sync.enqueue(1)
    assert done == [1, 2]


def test_a_second_task_has_the_handle_of_the_first(coordinator: TestCoordinator) -> None:
    first, second, other = (greet.enqueue(user) for user in ("ada", "ada", "bob"))

    coordinator.drain()

    assert first.id == second.id != other.id
    assert second.result() == "ada"
    assert done == ["ada", "bob"]


def test_a_burst_runs_once_with_its_last_arguments(coordinator: TestCoordinator) -> None:
    index.enqueue({"id": 7, "version": 1})
    index.enqueue({"id": 7, "version": 2}, depth=3)
    index.enqueue({"id": 7, "version": 2}, depth=4)

    coordinator.clock.advance(ms=1_000)
    coordinator.drain()

    assert done == [{"id": 7, "version": 2}] * 2


def test_options_for_one_call_replace_those_of_the_task(coordinator: TestCoordinator) -> None:
    once = greet.using(unique=Unique(key="{user}", on_conflict="reject"))
    once.enqueue("ada")

    with pytest.raises(UniqueConflict):
        once.enqueue("ada")


def test_a_discarded_task_is_cancelled(coordinator: TestCoordinator) -> None:
    handle = suggest.enqueue("r")
    coordinator.clock.advance(ms=1_000)
    coordinator.drain()

    assert handle.status() is TaskState.CANCELLED
    with pytest.raises(TaskCancelled):
        handle.result()


@pytest.mark.parametrize("key", ["{nobody}", "{", "{0}", "user:{}", "{user_id.x} {other[1]}"])
def test_a_key_that_names_no_argument_is_refused_at_once(key: str) -> None:
    with pytest.raises(Invalid, match="sync"):
        sync.using(unique=Unique(key=key))


def test_double_braces_stand_for_themselves() -> None:
    task = greet.using(unique=Unique(key="{{x}} {user}")).bind("ada").new_task

    assert task.unique is not None
    assert task.unique.key == "{x} ada"
