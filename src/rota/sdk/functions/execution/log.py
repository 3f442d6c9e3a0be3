"""The log of a function, read for a replay: what each operation did, and what was seen when.

The order of the log is the order in which the function saw things. So a replay delivers the ends
of operations in that order, one at a time. Ends that no function has seen follow.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rota.core.workflow.functions.model import WITHDRAWN, Operation, OperationKind, OperationState
from rota.sdk.functions.execution.scopes import is_undo, scope_of


class LoggedOperation(Struct, frozen=True, kw_only=True):
    """An entry of the log as a replay reads it; its result is decoded when the function sees it."""

    path: str
    kind: OperationKind
    state: OperationState
    result: Raw = Raw(b"null")
    error: dict[str, Any] | None = None
    arguments: str | None = None
    attempts: int = 1
    ended_at_ms: int | None = None
    line: int | None = None


LogEntry = Operation | LoggedOperation


class FunctionResumption(Struct, frozen=True, kw_only=True):
    """The payload of a function's task as a worker reads it: see `Resumption`."""

    run_id: str
    workflow: str
    version: int
    input: Raw = Raw(b"null")
    started_at_ms: int
    restarts: int = 0
    reported: int = 0
    log: list[LoggedOperation] | None = None
    ended: list[LoggedOperation] | None = None
    cancelled: str | None = None


class RecordedOperation:
    """What the log has of one path."""

    __slots__ = ("end", "first", "is_pending", "is_seen", "is_visited", "is_withdrawn")

    def __init__(self, first: LogEntry) -> None:
        self.first = first
        self.end: LogEntry | None = None
        self.is_pending = first.state == "pending"  # the coordinator was asked for it
        self.is_seen = False  # by an earlier function
        self.is_withdrawn = False
        self.is_visited = False  # by this function


class FunctionLog:
    """The recorded operations of a run by path, and the ends to deliver, in their order."""

    def __init__(self, entries: Iterable[LogEntry] = ()) -> None:
        self.recorded: dict[str, RecordedOperation] = {}
        self.deliveries: deque[str] = deque()
        self._unvisited: dict[str, int] = {}  # paths by scope that this function has not asked for
        self._skipped: set[str] = set()  # paths whose turn came before they were asked for
        unseen: list[str] = []
        for entry in entries:
            unseen += self._read(entry)
        self.deliveries += [path for path in unseen if self._is_unseen(path)]

    def _read(self, entry: LogEntry) -> list[str]:
        """Note one entry; returns its path if it is an end that the coordinator has written."""
        path = entry.path
        found = self.recorded.get(path)
        if found is None:
            found = self.recorded[path] = RecordedOperation(entry)
            scope = scope_of(path)
            found.is_visited = entry.kind == "marker"  # a removed marker is no difference
            self._unvisited[scope] = self._unvisited.get(scope, 0) + (not found.is_visited)
        match entry.state:
            case "started" | "pending":
                pass
            case "delivered":
                found.is_seen = True
                self.deliveries.append(path)
            case "done" | "failed":
                if is_withdrawal(entry):
                    found.is_withdrawn = True
                elif found.is_pending:
                    found.end = entry
                    return [path]
                else:
                    found.end = entry
                    found.is_seen = True
                    self.deliveries.append(path)
        return []

    def _is_unseen(self, path: str) -> bool:
        found = self.recorded[path]
        return not found.is_seen and not found.is_withdrawn

    def add_ended(self, entries: Iterable[LogEntry]) -> None:
        """Note what the coordinator has ended since the function was suspended."""
        for entry in entries:
            if entry.state not in {"done", "failed"} or is_withdrawal(entry):
                continue
            found = self.recorded.get(entry.path)
            if found is not None and found.end is None and not found.is_withdrawn:
                found.end = entry
                self.deliveries.append(entry.path)

    def note_reported(self, entry: LogEntry) -> None:
        """Note an operation that this function asks the coordinator for."""
        found = self.recorded[entry.path] = RecordedOperation(entry)
        found.is_visited = True

    def visit(self, path: str) -> RecordedOperation | None:
        """What the log has of a path that the function asks for now; None: it is new."""
        found = self.recorded.get(path)
        if found is not None and not found.is_visited:
            found.is_visited = True
            self._unvisited[scope_of(path)] -= 1
            if path in self._skipped:
                self._skipped.discard(path)
                self.deliveries.appendleft(path)
        return found

    def skip(self) -> None:
        """Pass over the next end: the function has not asked for its operation."""
        path = self.deliveries.popleft()
        if not self.recorded[path].is_visited:
            self._skipped.add(path)

    @property
    def is_replaying(self) -> bool:
        """Whether the log has something that this function has not come to yet."""
        return bool(self.deliveries) or any(self._unvisited.values())

    def has_unvisited(self, scope: str) -> bool:
        return self._unvisited.get(scope, 0) > 0

    def unvisited(self, scope: str | None = None) -> list[RecordedOperation]:
        """The operations that the function has not asked for, in one scope or in all."""
        return [
            found
            for path, found in self.recorded.items()
            if not found.is_visited and (scope is None or scope_of(path) == scope)
        ]

    def unvisited_within(self, scope: str) -> list[str]:
        """What the function did not ask for in a scope and those inside it, as `kind path`."""
        inside = f"{scope}/" if scope else ""
        return [
            f"{found.first.kind} {path}"
            for path, found in self.recorded.items()
            if not found.is_visited and path.startswith(inside) and not is_undo(path)
        ]


def is_withdrawal(entry: LogEntry) -> bool:
    """Whether a function gives up an operation that it asked the coordinator for."""
    return (
        entry.state == "failed" and entry.error is not None and entry.error.get("type") == WITHDRAWN
    )


def plain_result(end: LogEntry) -> Any:
    """The recorded result of an operation, as JSON has it."""
    result = end.result
    return msgspec.json.decode(result) if isinstance(result, Raw) else result
