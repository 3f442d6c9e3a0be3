"""What an open run waits for, in one line of a list."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rota.core.workflow.functions.model import TASK_PREFIX
from rota.core.workflow.waits import RunWait, WaitKind

MOST_PARTS = 2  # of the line


class LiveWork(Struct, frozen=True, kw_only=True):
    """The live tasks and child runs of an open run, by name."""

    running: dict[str, int] = {}  # tasks
    queued: dict[str, int] = {}
    scheduled: dict[str, int] = {}
    children: dict[str, int] = {}  # by workflow
    sleeps_until_ms: int | None = None  # the first of its sleeps


class Standing(Struct, frozen=True, kw_only=True):
    """What an open run waits for, in one line."""

    text: str
    until_ms: int | None = None  # when the wait ends by itself, or times out


def standing_of(waits: Sequence[RunWait], work: LiveWork) -> Standing | None:
    """Describe what an open run waits for; None: for nothing that is known here."""
    by_kind: dict[WaitKind, list[RunWait]] = {"approval": [], "branches": [], "signal": []}
    for wait in sorted(waits, key=lambda one: (one.since_ms, one.number)):
        by_kind[wait.kind].append(wait)
    approvals, branches, signals = by_kind["approval"], by_kind["branches"], by_kind["signal"]
    parts: list[Standing] = []
    if approvals:
        title = approvals[0].title or approvals[0].place
        parts.append(_first(f"approval: {title}", approvals))
    if signals:  # before the branches that a wait for one may be in: it needs an answer
        parts.append(_first(f"signal {signals[0].name!r}", signals))
    if branches:
        parts.append(_first(_branches_text(branches[0], work), branches))
    elif work.running or work.queued or work.scheduled:
        parts.append(Standing(text=_tasks_text(work)))
    elif work.children:
        parts.append(Standing(text=_children_text(work.children)))
    if work.sleeps_until_ms is not None and len(parts) < MOST_PARTS:
        parts.append(Standing(text="sleeping", until_ms=work.sleeps_until_ms))
    if not parts:
        return None
    shown = parts[:MOST_PARTS]
    moments = [one.until_ms for one in shown if one.until_ms is not None]
    return Standing(
        text=", ".join(one.text for one in shown), until_ms=min(moments) if moments else None
    )


def _first(text: str, waits: Sequence[RunWait]) -> Standing:
    """Describe the first of some waits, and count the others."""
    more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
    return Standing(text=text + more, until_ms=waits[0].due_at_ms)


def _branches_text(wait: RunWait, work: LiveWork) -> str:
    total = wait.total or 0
    running = min(total, sum(work.running.values()) + sum(work.children.values()))
    return f"{running:,} of {total:,} branches of {wait.name!r} running"


def _tasks_text(work: LiveWork) -> str:
    states = {"running": work.running, "queued": work.queued, "scheduled": work.scheduled}
    if sum(map(len, states.values())) == 1:
        for state, names in states.items():
            for name, count in names.items():
                if name.startswith(TASK_PREFIX):
                    return f"its function is {state}"
                return f"task {name!r} {state}" if count == 1 else f"{count:,} {name!r} {state}"
    counts = {state: sum(names.values()) for state, names in states.items() if names}
    return "tasks: " + ", ".join(f"{count:,} {state}" for state, count in counts.items())


def _children_text(children: Mapping[str, int]) -> str:
    count = sum(children.values())
    if count == 1:
        return f"child run of {next(iter(children))!r}"
    if len(children) == 1:
        return f"{count:,} child runs of {next(iter(children))!r}"
    return f"{count:,} child runs"
