"""Tasks that wait for their transaction: found by key, waited for, and never by the wrong means."""

import threading
from pathlib import Path
from typing import Any

import pytest

from rota import Invalid, PendingHandle, Rota, TaskState
from rota.core.tasks.model import NewTask
from rota.sdk.encoding import decoder_of
from rota.sdk.inbox import connection_of, inbox_of, with_key
from tests.sdk.serving import Server, working


def pending(app: Rota, key: str) -> PendingHandle[Any]:
    return PendingHandle(key, lambda: app.client, decoder_of(Any))


def test_a_task_that_is_not_there_has_no_state_and_is_waited_for_in_vain(app: Rota) -> None:
    handle = pending(app, "k")

    assert (handle.find(), handle.view(), handle.status()) == (None, None, None)
    with pytest.raises(TimeoutError, match="not there yet"):
        handle.result(timeout=0.05)


async def test_the_same_in_async_code(app: Rota) -> None:
    handle = pending(app, "k")

    assert (await handle.afind(), await handle.aview(), await handle.astatus()) == (None,) * 3
    with pytest.raises(TimeoutError, match="not there yet"):
        await handle.aresult(timeout=0.05)


def test_a_task_is_found_as_soon_as_it_is_there_and_its_result_awaited(
    server: Server, app: Rota
) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    handle = pending(app, "k")
    results: list[Any] = []
    waiting = threading.Thread(target=lambda: results.append(handle.result(30)))
    waiting.start()
    with working(app):
        submitted = double.using(key="k").enqueue(21)
        waiting.join(30)

    assert results == [42]
    assert handle.find() is not None
    assert handle.view() == submitted.view()
    assert handle.status() is TaskState.SUCCEEDED


@pytest.mark.parametrize("given", ["postgresql://here", 1, {}], ids=repr)
def test_what_is_no_connection_is_refused_by_name(app: Rota, given: object) -> None:
    with pytest.raises(Invalid, match=type(given).__name__):
        app.enqueue("work", conn=given)


def test_an_app_with_a_coordinator_inside_has_no_transaction_to_share(tmp_path: Path) -> None:
    with Rota(f"sqlite:///{tmp_path}/rota.db") as app, pytest.raises(Invalid, match="SQLite"):
        app.enqueue("work", conn=object())


def test_a_schema_must_be_a_plain_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ('a"b', "A", "1", "x" * 41):
        with pytest.raises(Invalid, match="schema"):
            Rota("http://127.0.0.1:1", schema=name)
    monkeypatch.setenv("ROTA_SCHEMA", "elsewhere")
    assert inbox_of(None).schema == "elsewhere"
    assert inbox_of("here").schema == "here"


def test_a_task_without_a_key_is_given_one_of_its_own() -> None:
    first, second = with_key(NewTask(name="work")), with_key(NewTask(name="work"))

    assert first.key != second.key
    assert with_key(NewTask(name="work", key="k")).key == "k"


def test_a_cursor_is_not_a_connection() -> None:
    class Cursor:
        __module__ = "psycopg.cursor"

    with pytest.raises(Invalid, match="give the connection"):
        connection_of(Cursor())
