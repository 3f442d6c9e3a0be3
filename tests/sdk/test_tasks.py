"""A task is its function, with a name, options, and a way to be called later."""

import asyncio
import inspect

import msgspec
import pytest

from rota import Backoff, Rota
from rota.errors import Invalid


@pytest.fixture
def app() -> Rota:
    return Rota("http://127.0.0.1:1")


def test_calling_a_task_calls_its_function(app: Rota) -> None:
    @app.task
    def add(a: int, b: int = 1) -> int:
        """Sum."""
        return a + b

    @app.task
    async def aadd(a: int) -> int:
        return a + 1

    assert add(1, b=2) == 3
    assert asyncio.run(aadd(1)) == 2
    assert add.__doc__ == "Sum."
    assert str(inspect.signature(add)) == "(a: int, b: int = 1) -> int"


def test_a_task_is_named_as_its_function_unless_told(app: Rota) -> None:
    @app.task
    def first() -> None: ...

    @app.task(name="other")
    def second() -> None: ...

    assert set(app.tasks) == {"first", "other"}


def test_a_name_is_given_once(app: Rota) -> None:
    @app.task(name="mail")
    def first() -> None: ...

    with pytest.raises(Invalid, match="task named 'mail' already"):

        @app.task(name="mail")
        def second() -> None: ...


def test_options_stand_in_the_new_task(app: Rota) -> None:
    @app.task(max_attempts=5, requires=["gpu"], queue="images", backoff={"kind": "linear"})
    def resize(path: str) -> None: ...

    new_task = resize.bind("a.png").new_task

    assert new_task.name == "resize"
    assert new_task.max_attempts == 5
    assert new_task.requires == ("gpu",)
    assert new_task.queue == "images"
    assert new_task.backoff == Backoff(kind="linear")
    assert msgspec.json.decode(new_task.payload) == {"path": "a.png"}


def test_using_changes_a_copy_and_keeps_the_rest(app: Rota) -> None:
    @app.task(max_attempts=5)
    def work() -> None: ...

    urgent = work.using(priority=9, labels={"tenant": "a"})

    assert urgent.bind().new_task.priority == 9
    assert urgent.bind().new_task.max_attempts == 5
    assert urgent.bind().new_task.labels == {"tenant": "a"}
    assert work.bind().new_task.priority == 0
    assert app.tasks["work"] is work


def test_options_out_of_bounds_are_refused_where_they_are_written(app: Rota) -> None:
    with pytest.raises(Invalid, match=r"task 'work'.*max_attempts"):

        @app.task(max_attempts=0)
        def work() -> None: ...

    with pytest.raises(Invalid, match=r"'play'.*jitter"):

        @app.task(backoff={"jitter": 3.0})
        def play() -> None: ...


def test_an_async_function_does_not_run_in_a_thread(app: Rota) -> None:
    with pytest.raises(Invalid, match="is async"):

        @app.task(run_in="thread")
        async def work() -> None: ...


def test_making_an_app_opens_nothing() -> None:
    app = Rota("sqlite:////nowhere/at/all/rota.db")

    @app.task
    def work() -> None: ...

    assert work.bind().new_task.name == "work"


def test_a_url_of_no_known_kind_is_refused() -> None:
    with pytest.raises(Invalid, match="http://, https:// or sqlite:"):
        Rota("ftp://example").start()
