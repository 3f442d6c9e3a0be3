"""The backend of `django.tasks` that hands tasks to a coordinator."""

import os
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured  # type: ignore[import-untyped]  # no types
from django.db import connections, transaction  # type: ignore[import-untyped]  # no types
from django.utils import timezone  # type: ignore[import-untyped]  # no types

from rota.contrib.django import registry
from rota.contrib.django.arguments import plain_arguments
from rota.contrib.django.options import (
    BackendOptions,
    address_of,
    check_task_options,
    findings,
    read_options,
)
from rota.contrib.django.results import CallPayload, find_result, milliseconds
from rota.contrib.django.task_api import (
    BaseTaskBackend,
    DjangoResult,
    DjangoTask,
    TaskResult,
    TaskResultStatus,
    task_enqueued,
)
from rota.sdk.app.app import Rota
from rota.sdk.task import Options

ID_BYTES = 16

_lock = threading.Lock()
_apps: dict[tuple[str | None, str | None, bool | str, str | None], Rota] = {}


def _forget_apps() -> None:
    """Begin without connections in a forked process: those of its parent cannot be shared."""
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.Lock()
    _apps.clear()


os.register_at_fork(after_in_child=_forget_apps)


def app_of(options: BackendOptions) -> Rota:
    """The app of a coordinator; Django makes a backend for every thread, and they share it."""
    url, token = address_of(options), options.token
    identity = (url, token, options.verify, options.schema)
    with _lock:
        app = _apps.get(identity)
        if app is None:
            app = _apps[identity] = Rota(
                url, token, verify=options.verify, schema=options.schema, concurrency=0
            )
        return app


class PreparedCall(NamedTuple):
    """A checked call, ready to be enqueued."""

    result: DjangoResult
    name: str
    payload: CallPayload
    options: Options


class RotaBackend(BaseTaskBackend):
    """Enqueues tasks at the coordinator of OPTIONS["url"], and reads their results."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._checked: BackendOptions | None = None
        self._task_options: Options = {}

    @property
    def rota(self) -> Rota:
        """The app that speaks with the coordinator."""
        return app_of(self.checked_options)

    @property
    def checked_options(self) -> BackendOptions:
        if self._checked is None:
            problem = next(findings(self.options), None)
            if problem is not None:
                text = f"TASKS[{self.alias!r}]: {problem.text} {problem.hint} ({problem.id})"
                raise ImproperlyConfigured(text)
            checked = read_options(self.options)
            self._task_options = check_task_options(checked.task_options)
            self._checked = checked
        return self._checked

    def check(self, **_: Any) -> Iterable[Any]:
        """Check the settings of this backend; nothing is sent."""
        return [one.error(self.alias) for one in findings(self.options)]

    def validate_task(self, task: DjangoTask) -> None:
        super().validate_task(task)
        registry.register(task)

    # --- enqueueing -----------------------------------------------------------------------------

    def enqueue(
        self, task: DjangoTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> DjangoResult:
        call = self._prepare(task, args, kwargs)
        if not self._join_transaction(call):
            self._submit(call)
        return call.result

    async def aenqueue(
        self, task: DjangoTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> DjangoResult:
        call = self._prepare(task, args, kwargs)
        # The transaction around async code is in the thread of the sync code around it.
        join = sync_to_async(self._join_transaction, thread_sensitive=True)
        if self.checked_options.transaction == "ignore" or not await join(call):
            await self.rota.aenqueue(call.name, call.payload, **call.options)
            await task_enqueued.asend(type(self), task_result=call.result)
        return call.result

    def _prepare(
        self, task: DjangoTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> "PreparedCall":
        self.validate_task(task)
        _ = self.checked_options
        plain_args, plain_kwargs = plain_arguments(task, args, kwargs)
        result: DjangoResult = TaskResult(
            task=task,
            id=secrets.token_hex(ID_BYTES),
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=plain_args,
            kwargs=plain_kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        options: Options = {**self._task_options, **registry.options_of(task)}
        options["queue"] = task.queue_name
        options["priority"] = int(task.priority)
        options["key"] = result.id
        if task.run_after is not None:
            options["run_at_ms"] = max(0, milliseconds(task.run_after))
        payload = CallPayload(args=plain_args, kwargs=plain_kwargs)
        return PreparedCall(result, task.module_path, payload, options)

    def _join_transaction(self, call: "PreparedCall") -> bool:
        """Make the task part of the open transaction; False: there is none, or it is ignored."""
        options = self.checked_options
        if options.transaction == "ignore":
            return False
        connection = connections[options.database]
        if not connection.in_atomic_block:
            return False
        if options.transaction == "inbox":
            self.rota.enqueue(call.name, call.payload, conn=connection, **call.options)
            after = partial(task_enqueued.send, type(self), task_result=call.result)
        else:
            after = partial(self._submit, call)
        transaction.on_commit(after, using=options.database)
        return True

    def _submit(self, call: "PreparedCall") -> None:
        self.rota.enqueue(call.name, call.payload, **call.options)
        task_enqueued.send(type(self), task_result=call.result)

    # --- results --------------------------------------------------------------------------------

    def get_result(self, result_id: str) -> DjangoResult:
        return self.rota.client.run(find_result(self.alias, str(result_id)))

    async def aget_result(self, result_id: str) -> DjangoResult:
        return await self.rota.client.arun(find_result(self.alias, str(result_id)))
