"""Submits the calls of an app: in batches to its coordinator, or into a transaction of its own."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rota.core import limits
from rota.core.tasks.model import NewTask
from rota.errors import Invalid
from rota.sdk.app.connection import AppConnection
from rota.sdk.arguments import check_templates, has_templates, with_filled_keys
from rota.sdk.client import calls
from rota.sdk.client.requests import Exchange
from rota.sdk.encoding import decoder_of, encode
from rota.sdk.handles import PendingHandle, TaskHandle
from rota.sdk.inbox import inbox_of, with_key
from rota.sdk.middleware.chain import MiddlewareChain
from rota.sdk.task import Options, Submission, template_of

R = TypeVar("R")


class Submitter:
    """Enqueues calls inside the middleware of an app, and makes their handles."""

    def __init__(
        self,
        connection: AppConnection,
        *,
        schema: str | None,
        middleware: Callable[[], MiddlewareChain | None],
    ) -> None:
        """`schema`: that of Rota in the database of the transactions."""
        self.inbox = inbox_of(schema)
        self._connection = connection
        self._middleware = middleware

    def submit(self, submissions: Iterable[Submission[R]]) -> Exchange[list[TaskHandle[R]]]:
        """The calls that submit tasks, each batch whole or not at all."""
        middleware = self._middleware()
        if middleware is None:
            return (yield from self._send(submissions))
        given = list(submissions)
        with middleware.enqueueing([one.new_task for one in given]) as enqueued:
            sent: list[Submission[R]] = [
                Submission(task, one.decoder)
                for task, one in zip(enqueued.tasks, given, strict=True)
            ]
            handles = yield from self._send(sent)
            enqueued.note(handles)
        return handles

    def _send(self, submissions: Iterable[Submission[R]]) -> Exchange[list[TaskHandle[R]]]:
        handles: list[TaskHandle[R]] = []
        for batch in _batches(submissions):
            receipts = yield calls.submit_for_receipts([one.new_task for one in batch])
            handles += [
                TaskHandle(
                    receipt.id, self._connection.client, one.decoder, is_duplicate=receipt.duplicate
                )
                for one, receipt in zip(batch, receipts, strict=True)
            ]
        return handles

    # --- transactions ---------------------------------------------------------------------------

    def put(self, submissions: Iterable[Submission[R]], conn: Any) -> list[PendingHandle[R]]:
        """Make tasks a part of the transaction that is open on a connection."""
        keyed = self._with_keys(submissions)
        with self._enqueueing(keyed) as tasks:
            self.inbox.put(conn, tasks)
        return self._pending(keyed)

    async def aput(self, submissions: Iterable[Submission[R]], conn: Any) -> list[PendingHandle[R]]:
        """As `put`, for async connections."""
        keyed = self._with_keys(submissions)
        with self._enqueueing(keyed) as tasks:
            await self.inbox.aput(conn, tasks)
        return self._pending(keyed)

    def _with_keys(self, submissions: Iterable[Submission[R]]) -> list[Submission[R]]:
        """The calls for a transaction, each with a key that finds its task afterwards."""
        if self._connection.embeds_coordinator:
            raise Invalid(
                "this app embeds a coordinator on SQLite, which a PostgreSQL transaction cannot "
                "reach: give the app the URL of a coordinator on that database",
                field="conn",
            )
        return [Submission(with_key(one.new_task), one.decoder) for one in submissions]

    @contextlib.contextmanager
    def _enqueueing(self, keyed: Iterable[Submission[Any]]) -> Iterator[list[NewTask]]:
        """The tasks of a transaction, inside the middleware, which learns no ids."""
        tasks = [one.new_task for one in keyed]
        middleware = self._middleware()
        if middleware is None:
            yield tasks
            return
        with middleware.enqueueing(tasks) as enqueued:
            yield enqueued.tasks

    def _pending(self, keyed: Iterable[Submission[R]]) -> list[PendingHandle[R]]:
        client = self._connection.client
        return [
            PendingHandle(one.new_task.key or "", client, one.decoder, one.new_task.queue)
            for one in keyed
        ]


def bind_by_name(name: str, payload: Any, options: Options) -> Submission[Any]:
    """A call of a task that another program defines; the payload is sent as it is."""
    raw = msgspec.Raw(encode(payload))
    new_task = msgspec.structs.replace(template_of(name, options), payload=raw)
    if has_templates(new_task):
        fields = payload if isinstance(payload, Mapping) else {}
        check_templates(new_task, fields)
        new_task = with_filled_keys(new_task, fields)
    return Submission(new_task, decoder_of(Any))


def _batches(submissions: Iterable[Submission[R]]) -> Iterable[Sequence[Submission[R]]]:
    waiting = list(submissions)
    size = limits.MAX_TASKS_PER_SUBMISSION
    for start in range(0, len(waiting), size):
        yield waiting[start : start + size]
