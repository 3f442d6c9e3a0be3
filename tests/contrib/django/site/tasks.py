"""The tasks of the project, in the module beside its URLs."""

import threading
from typing import TYPE_CHECKING, Any

import django  # type: ignore[import-untyped]  # Django has no types
from django.db import connection  # type: ignore[import-untyped]  # as above

import rota
from rota import Discard
from rota.contrib.django import task_options

if TYPE_CHECKING or django.VERSION < (6, 0):
    from django_tasks import TaskContext, task
else:
    from django.tasks import TaskContext, task

opened = threading.Event()  # is never set: for a short wait


class Refused(Exception):  # noqa: N818 - as tasks of users have them
    pass


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task
async def aadd(a: int, b: int) -> int:
    return a + b


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    return {"args": list(args), "kwargs": kwargs}


@task
def returns_object() -> object:
    return object()


@task
@task_options(max_attempts=1)
def fails(text: str) -> None:
    raise Refused(text)


@task
def discards() -> None:
    raise Discard("not worth another attempt")


@task
def discards_for_a_cause() -> None:
    raise Discard(cause=Refused("too big"))


@task(takes_context=True)
def second_time(context: TaskContext) -> list[Any]:
    if context.attempt < 2:
        raise ValueError("not yet")
    result = context.task_result
    return [context.attempt, result.id, [one.exception_class_path for one in result.errors]]


@task(takes_context=True)
async def asecond_time(context: TaskContext) -> int:
    if context.attempt < 2:
        raise ValueError("not yet")
    return int(context.attempt)


@task(queue_name="mail", priority=7)
def mail(to: str) -> str:
    return to


@task
@task_options(timeout_ms=50, max_attempts=1)
def outlasts_its_time() -> None:
    while not rota.current().is_cancelled:
        opened.wait(0.01)


@task
def has_stale_connection() -> bool:
    """Ask the database, and leave a connection that is too old for the next task."""
    was_stale = connection.connection is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    connection.close_at = 0  # the time at which Django closes it
    return was_stale


@task
async def asks_database() -> int:
    def ask() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 41 + 1")
            return int(cursor.fetchone()[0])

    from asgiref.sync import sync_to_async  # noqa: PLC0415 - only here

    return await sync_to_async(ask)()
