"""Starts groups and chains of calls: the part of an app that `app.group` and `app.chain` are."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rota.sdk.client.client import Client
from rota.sdk.client.requests import Exchange
from rota.sdk.task import App, Submission, TimeLimit

if TYPE_CHECKING:
    from rota.sdk.groups.generated import Callback, Link
    from rota.sdk.groups.handles import ChainHandle, GroupHandle

R = TypeVar("R")


class GroupStarter(App, ABC):
    """An app as the starter of groups and chains."""

    @property
    @abstractmethod
    def client(self) -> Client:
        """The client of the app."""

    @abstractmethod
    def start(self) -> None:
        """Connect to the coordinator; if it is embedded, start the worker too."""

    def group(
        self,
        members: Iterable[Submission[R]],
        *,
        on_success: "Callback | None" = None,
        on_failure: "Callback | None" = None,
        on_complete: "Callback | None" = None,
        key: str | None = None,
        timeout_ms: TimeLimit = None,
    ) -> "GroupHandle[R]":
        """Run many calls, made by `task.bind(…)`, at once, and a callback when all have ended.

        `on_success` gets the list of their results, if none has failed; `on_failure` the outcomes
        of those that have failed. `on_complete` gets the outcomes of all, after the other callback.
        A callback is a task, or `task.partial(…)` with its further arguments, or `task.bind(…)`
        with all of them, which ignores what it would get; each starts once.
        """
        exchange = self._start_group(members, on_success, on_failure, on_complete, key, timeout_ms)
        return self.client.run(exchange)

    async def agroup(
        self,
        members: Iterable[Submission[R]],
        *,
        on_success: "Callback | None" = None,
        on_failure: "Callback | None" = None,
        on_complete: "Callback | None" = None,
        key: str | None = None,
        timeout_ms: TimeLimit = None,
    ) -> "GroupHandle[R]":
        """As `group`, for async code."""
        exchange = self._start_group(members, on_success, on_failure, on_complete, key, timeout_ms)
        return await self.client.arun(exchange)

    def _start_group(  # noqa: PLR0917 - as `group` has them
        self,
        members: Iterable[Submission[R]],
        on_success: "Callback | None",
        on_failure: "Callback | None",
        on_complete: "Callback | None",
        key: str | None,
        timeout_ms: TimeLimit,
    ) -> "Exchange[GroupHandle[R]]":
        from rota.sdk.groups import generated, handles  # noqa: PLC0415 - they take YAML and CEL

        calls_of_members = [*members]
        group = generated.group_of(
            calls_of_members, on_success=on_success, on_failure=on_failure, on_complete=on_complete
        )
        self.start()
        run = yield from handles.start(self, group, key=key, timeout_ms=timeout_ms)
        return handles.GroupHandle(self, run, [one.decoder for one in calls_of_members])

    @overload
    def chain(
        self, first: Submission[R], /, *, key: str | None = None, timeout_ms: TimeLimit = None
    ) -> "ChainHandle[R]": ...
    @overload
    def chain(
        self,
        first: Submission[Any],
        second: "Link[R]",
        /,
        *,
        key: str | None = None,
        timeout_ms: TimeLimit = None,
    ) -> "ChainHandle[R]": ...
    @overload
    def chain(
        self,
        first: Submission[Any],
        second: "Callback",
        third: "Link[R]",
        /,
        *,
        key: str | None = None,
        timeout_ms: TimeLimit = None,
    ) -> "ChainHandle[R]": ...
    @overload
    def chain(
        self,
        first: Submission[Any],
        /,
        *links: "Callback",
        key: str | None = None,
        timeout_ms: TimeLimit = None,
    ) -> "ChainHandle[Any]": ...

    def chain(
        self,
        first: Submission[Any],
        /,
        *links: "Callback",
        key: str | None = None,
        timeout_ms: TimeLimit = None,
    ) -> Any:
        """Run a call, and then each further task with the result of the one before it.

        The result is the first argument of the task; `task.partial(…)` has its other ones. A call
        made by `task.bind(…)` has all of its arguments, and ignores the result.
        """
        return self.client.run(self._start_chain(first, links, key, timeout_ms))

    async def achain(
        self,
        first: Submission[Any],
        /,
        *links: "Callback",
        key: str | None = None,
        timeout_ms: TimeLimit = None,
    ) -> "ChainHandle[Any]":
        """As `chain`, for async code."""
        return await self.client.arun(self._start_chain(first, links, key, timeout_ms))

    def _start_chain(
        self,
        first: Submission[Any],
        links: "Sequence[Callback]",
        key: str | None,
        timeout_ms: TimeLimit,
    ) -> "Exchange[ChainHandle[Any]]":
        from rota.sdk.groups import generated, handles  # noqa: PLC0415 - they take YAML and CEL

        chain = generated.chain_of(first, links)
        self.start()
        run = yield from handles.start(self, chain, key=key, timeout_ms=timeout_ms)
        return handles.ChainHandle(run, generated.decoder_of_last(first, links))
