"""The log of a function, when it is not only appended to.

A restart begins a new log. A retry takes failures out, so that the function tries them again. After
a divergence an operator may accept the new code: what it no longer asks for is taken out. A fork
begins with a part of another log.
"""

from collections.abc import Collection
from typing import Any

from rota.core.workflow.decisions import DropOperations, RestartFunction
from rota.core.workflow.functions import operations
from rota.core.workflow.functions.model import (
    WITHDRAWN,
    Divergence,
    EventRequest,
    Operation,
    scope_of,
)
from rota.core.workflow.functions.run import CodeRun, UnseenEnd

UNDO = "undo/"  # before the path of the operation that is undone


def restart(run: CodeRun, new_input: Any) -> None:
    """Restart the function with another input. Signals that were kept and published values stay."""
    operations.cancel_all(run)
    run.first, run.log, run.log_bytes = run.length, [], 0
    run.reported, run.count = 0, 0
    run.restarts += 1
    run.unseen, run.begun, run.resumable = {}, {}, {}
    run.input = new_input
    run.decisions.append(RestartFunction(run.restarts))
    run.is_due = True


def not_undone(run: CodeRun) -> list[dict[str, Any]]:
    """The operations that were to be undone, and were not."""
    entries = run.operations()
    undone = {one.path for one in entries if one.state == "done" and one.path.startswith(UNDO)}
    return [
        {"path": one.path}
        for one in entries
        if one.can_undo and one.state == "done" and UNDO + one.path not in undone
    ]


# --- dropping -------------------------------------------------------------------------------------


def accept(run: CodeRun, divergence: Divergence) -> None:
    """Drop what the log has and the new code did not ask for."""
    paths = {one.partition(" ")[2] for one in divergence.recorded}
    if divergence.path is not None:
        paths.add(divergence.path)
    _drop(run, paths, "the new code does not ask for them")


def forget_failures(run: CodeRun) -> None:
    """Drop the failures at which a function stopped.

    Work that was undone has to be done again, with everything after it. Otherwise those failures
    are dropped after which nothing has begun in their scope, or in one around it: the function had
    not gone on.
    """
    entries = run.operations()
    undone = {one.path.removeprefix(UNDO) for one in entries if one.path.startswith(UNDO)}
    begun: dict[str, int] = {}  # path -> the place of its first entry
    for place, one in enumerate(entries):
        begun.setdefault(one.path, place)
    if undone:
        first = min((begun[path] for path in undone if path in begun), default=0)
        dropped = {path for path, place in begun.items() if place >= first}
        _drop(run, dropped, "work that was undone is done again")
        return
    last: dict[str, int] = {}  # scope -> the place at which its last operation began
    for path, place in begun.items():
        last[scope_of(path)] = place
    failed = {one.path: place for place, one in enumerate(entries) if one.state == "failed"}
    dropped = {
        path
        for path, place in failed.items()
        if all(last.get(scope, -1) <= place for scope in _around(path))
    }
    _drop(run, dropped, "the run is retried")


def _around(path: str) -> list[str]:
    """The scope of a path, and the scopes around it."""
    parts = scope_of(path).split("/")
    return ["", *("/".join(parts[:end]) for end in range(1, len(parts) + 1))]


def _drop(run: CodeRun, paths: Collection[str], because: str) -> None:
    entries = run.operations()
    kept = [one for one in entries if one.path not in paths]
    if len(kept) == len(entries):
        return
    tokens: dict[str, int] = {}
    for place, one in enumerate(entries, 1):
        if one.path in paths:
            tokens.setdefault(one.path, run.first + place)
            if one.kind == "run" and one.state == "failed":
                run.resumable[one.path] = tokens[one.path]
    for path in tokens:
        pending = run.pending.get(path)
        if pending is not None:
            operations.cancel(run, pending)
        operations.give_back_signal(run, path)
        run.begun.pop(path, None)
    run.count -= len(tokens)
    run.keep(kept)
    run.decisions.append(DropOperations(tuple(tokens), because))


# --- forks ----------------------------------------------------------------------------------------


def before(run: CodeRun, path: str) -> list[Operation] | None:
    """The log up to an operation; None: there is no such operation.

    Operations that had not ended by then are left out: the function of the fork asks for them
    again, so its tasks, child runs and timers are its own.
    """
    entries = run.operations()
    place = next((place for place, one in enumerate(entries) if one.path == path), None)
    if place is None:
        return None
    prefix = entries[:place]
    ended = {one.path for one in prefix if one.state in {"done", "failed"}}
    return [one for one in prefix if one.path in ended or one.kind == "once"]


def take_over(run: CodeRun, entries: list[Operation]) -> None:
    """Begin with the log of another run."""
    asked: dict[str, EventRequest | None] = {}
    for one in entries:
        place = run.append(one)
        match one.state:
            case "pending":
                asked[one.path] = one.request if isinstance(one.request, EventRequest) else None
                run.count += 1
                run.reported += 1
            case "failed" if one.error is not None and one.error.get("type") == WITHDRAWN:
                run.unseen.pop(one.path, None)
                run.reported += 1
            case "done" | "failed" if one.path in asked:
                is_failed = one.state == "failed"
                run.unseen[one.path] = UnseenEnd(place, is_failed, asked[one.path])
            case "delivered":
                run.unseen.pop(one.path, None)
                run.reported += 1
            case _:
                run.count += one.path not in run.begun
                run.reported += 1
                if one.state == "started":
                    run.begun[one.path] = None
                else:
                    run.begun.pop(one.path, None)
