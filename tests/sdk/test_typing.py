"""Type checkers see through a task to its function: mypy checks this file as the others."""

from collections.abc import Coroutine
from typing import Any, assert_type

from rota import (
    Batch,
    ChainHandle,
    Concurrency,
    GroupHandle,
    PendingHandle,
    Rate,
    Rota,
    TaskHandle,
)
from rota.sdk.task import CoroutineTask, FunctionTask
from rota.testing import perform

app = Rota("http://127.0.0.1:1")


@app.task
def plain(path: str, width: int = 1) -> bytes:
    return path.encode() * width


@app.task(max_attempts=3, queue="q")
async def asynchronous(path: str) -> int:
    return len(path)


def test_a_plain_task_keeps_its_signature() -> None:
    assert_type(plain("a", width=2), bytes)
    assert isinstance(plain, FunctionTask)


def test_an_async_task_keeps_its_signature() -> None:
    coroutine = assert_type(asynchronous("a"), Coroutine[Any, Any, int])
    coroutine.close()
    assert isinstance(asynchronous, CoroutineTask)


def test_handles_know_the_type_of_their_result() -> None:
    def never_called(connection: object) -> None:
        assert_type(plain.enqueue("a", width=1), TaskHandle[bytes])
        assert_type(asynchronous.enqueue("a").result(), int)
        assert_type(asynchronous.using(priority=1).enqueue("a"), TaskHandle[int])
        limited = asynchronous.using(
            concurrency=Concurrency("path:{path}", limit=2),
            rate=[Rate("disk", limit=10, per_ms=1_000)],
            fair_key="{path}",
        )
        assert_type(limited.enqueue("a"), TaskHandle[int])
        assert_type(app.enqueue_many([plain.bind("a")]), list[TaskHandle[bytes]])
        assert_type(plain.enqueue("a", conn=connection), PendingHandle[bytes])
        assert_type(asynchronous.enqueue("a", conn=connection).result(), int)
        pending = app.enqueue_many([plain.bind("a")], conn=connection)
        assert_type(pending, list[PendingHandle[bytes]])

        assert_type(app.group([plain.bind("a")]), GroupHandle[bytes])
        assert_type(app.chain(plain.bind("a"), asynchronous), ChainHandle[int])
        assert_type(app.chain(plain.bind("a"), plain, asynchronous.partial()), ChainHandle[int])
        assert_type(app.chain(plain.bind("a")).result(), bytes)

    async def never_awaited() -> None:
        assert_type(await (await app.agroup([plain.bind("a")])).aresult(), list[bytes])
        assert_type(await plain.aenqueue("a"), TaskHandle[bytes])
        assert_type(await asynchronous.delay("a").aresult(), int)

    assert callable(never_called)
    assert callable(never_awaited)


@app.task(batch=Batch(size=2))
def batched(items: list[str]) -> list[int]:
    return [len(item) for item in items]


@app.task(batch=Batch(size=2))
async def batched_later(items: list[str]) -> None: ...


def test_a_call_of_a_batch_task_has_one_item() -> None:
    def never_called() -> None:
        assert_type(batched.enqueue("a"), TaskHandle[int])
        assert_type(batched_later.enqueue("a"), TaskHandle[None])
        batched.enqueue(1)  # type: ignore[call-overload]  # what this test is about
        batched.enqueue(["a"])  # type: ignore[call-overload]  # as above

    assert callable(never_called)
    assert batched(["a", "bc"]) == [1, 2]


def test_wrong_arguments_are_type_errors() -> None:
    def never_called() -> None:
        plain.enqueue(1)  # type: ignore[call-overload]  # what this test is about
        plain("a", height=1)  # type: ignore[call-arg]  # as above
        asynchronous.enqueue()  # type: ignore[call-overload]  # as above
        plain.using(priority="high")  # type: ignore[arg-type]  # as above
        plain.using(rate="10/s")  # type: ignore[arg-type]  # as above
        plain.using(concurrency=Rate("disk", limit=1))  # type: ignore[arg-type]  # as above
        Rate("disk")  # type: ignore[call-arg]  # as above
        plain.using(urgency=1)  # type: ignore[call-arg]  # as above

    assert callable(never_called)


def test_performing_keeps_the_type_as_well() -> None:
    assert_type(perform(asynchronous, "abc").result, int | None)
