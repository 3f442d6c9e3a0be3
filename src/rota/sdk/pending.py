"""How does a program follow a task that it has put into its own transaction? By the task's key.

Until the transaction is committed, and a coordinator has taken the task over, there is nothing to
find; of a transaction that is rolled back there never is.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from rota.core.tasks import TaskState
from rota.errors import Unavailable
from rota.messages import TaskPage, TaskView
from rota.sdk import calls
from rota.sdk.client import Client
from rota.sdk.handles import TaskHandle
from rota.sdk.waiting import Wait

R = TypeVar("R")

FIRST_PAUSE_S = 0.02  # between two looks whether the task is there; twice as long each time
LONGEST_PAUSE_S = 0.5
NOT_THERE = "not there yet"


class PendingHandle(Generic[R]):
    """A task that exists as soon as its transaction is committed, and only then."""

    __slots__ = ("_client", "_decoder", "_found", "key")

    def __init__(
        self, key: str, client: Callable[[], Client], decoder: msgspec.json.Decoder[Any]
    ) -> None:
        self.key = key
        self._client = client
        self._decoder = decoder
        self._found: TaskHandle[R] | None = None

    def __repr__(self) -> str:
        return f"<PendingHandle {self.key}>"

    def find(self) -> TaskHandle[R] | None:
        """The task's own handle; None while the task is not there."""
        if self._found is None:
            self._note(self._client().run(self._question()))
        return self._found

    async def afind(self) -> TaskHandle[R] | None:
        if self._found is None:
            self._note(await self._client().arun(self._question()))
        return self._found

    def view(self) -> TaskView | None:
        """Everything the coordinator tells about the task; None while it is not there."""
        handle = self.find()
        return None if handle is None else handle.view()

    async def aview(self) -> TaskView | None:
        handle = await self.afind()
        return None if handle is None else await handle.aview()

    def status(self) -> TaskState | None:
        view = self.view()
        return None if view is None else view.state

    async def astatus(self) -> TaskState | None:
        view = await self.aview()
        return None if view is None else view.state

    def result(self, timeout: float | None = None) -> R:
        """Wait for the task to be there, and for its end; otherwise as with `TaskHandle`.

        Not inside the transaction: the task runs after that was committed.
        """
        looking = _Looking(self.key, timeout)
        while True:
            try:
                handle = self.find()
            except Unavailable as error:
                time.sleep(looking.wait.pause_s(error))
                continue
            if handle is not None:
                return handle.result(looking.left_s())
            time.sleep(looking.pause_s())

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - as `result`
        """As `result`, for async code."""
        looking = _Looking(self.key, timeout)
        while True:
            try:
                handle = await self.afind()
            except Unavailable as error:
                await asyncio.sleep(looking.wait.pause_s(error))
                continue
            if handle is not None:
                return await handle.aresult(looking.left_s())
            await asyncio.sleep(looking.pause_s())

    def _question(self) -> calls.Call[TaskPage]:
        return calls.list_tasks(key=self.key)

    def _note(self, page: TaskPage) -> None:
        for view in page.items:
            self._found = TaskHandle(view.id, self._client, self._decoder)


class _Looking:
    """The patience of one who waits for a task to appear."""

    def __init__(self, key: str, timeout_s: float | None) -> None:
        self.wait = Wait(f"the task with the key {key!r}", timeout_s)
        self._ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        self._pause_s = FIRST_PAUSE_S

    def left_s(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())

    def pause_s(self) -> float:
        self.wait.go_on(NOT_THERE)
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        left_s = self.left_s()
        return pause_s if left_s is None else min(pause_s, left_s)
