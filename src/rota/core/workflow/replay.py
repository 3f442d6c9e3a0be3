"""Replay: applies a journal's events again, and compares the decisions.

The same definition must give the same decisions: a difference means that a journal was changed, or
that this version of Rota decides differently. With another definition the differences show what a
change would have meant for a run that is over. After the first difference two runs may have little
in common, so the first one counts; the others are listed all the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from rota.core.workflow.decisions import RunDecision
from rota.core.workflow.events import RunEvent, RunStarted
from rota.core.workflow.program import AnyDefinition, AnyRun, new_run, program_of, reduce

MOST_SHOWN = 120  # characters of a value that differs


class ReplayedEntry(Struct, frozen=True, kw_only=True):
    """One step of a journal, as it was stored or exported."""

    number: int
    event: RunEvent
    decisions: list[dict[str, Any]]  # as they were encoded


class Difference(Struct, frozen=True, kw_only=True):
    """A step that would be decided differently."""

    number: int  # of the entry
    event: RunEvent
    stored: list[dict[str, Any]]
    decided: list[dict[str, Any]]
    place: int  # of the first decision that differs, from 0
    words: str


def replay(definition: AnyDefinition, entries: Iterable[ReplayedEntry]) -> list[Difference]:
    """The entries of a run's journal that this definition decides differently."""
    program = program_of(definition, 1)  # no decision depends on the number of the version
    run: AnyRun | None = None
    differences = []
    for entry in entries:
        if run is None:
            started = entry.event
            run = new_run(program, started.input if isinstance(started, RunStarted) else None)
        try:
            decided = encoded(reduce(run, entry.event))
        except Exception as error:  # noqa: BLE001 - the journal is of another definition, or broken
            words = f"the event cannot be taken up: {type(error).__name__}: {error}"
            differences.append(_difference(entry, [], 0, words))
            return differences
        place = _first_difference(entry.decisions, decided)
        if place is not None:
            words = _describe_difference(entry.decisions, decided, place)
            differences.append(_difference(entry, decided, place, words))
    return differences


def encoded(decisions: Sequence[RunDecision]) -> list[dict[str, Any]]:
    """Decisions as a journal holds them."""
    builtins: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(decisions))
    return builtins


def _difference(
    entry: ReplayedEntry, decided: list[dict[str, Any]], place: int, words: str
) -> Difference:
    return Difference(
        number=entry.number,
        event=entry.event,
        stored=entry.decisions,
        decided=decided,
        place=place,
        words=words,
    )


def _first_difference(
    stored: Sequence[dict[str, Any]], decided: Sequence[dict[str, Any]]
) -> int | None:
    for place, (before, after) in enumerate(zip(stored, decided, strict=False)):
        # As texts: to Python 1, 1.0 and true are the same.
        if before is not after and _text(before) != _text(after):
            return place
    return None if len(stored) == len(decided) else min(len(stored), len(decided))


def _text(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


# --- in words -----------------------------------------------------------------------------------

# Each kind of decision in words. `describe` fills in its fields.
WORDS: dict[str, str] = {
    "CreateToken": "token {number} at {node}",
    "SetTokenState": "token {number} is {state}",
    "DispatchTask": "task {task} for token {number}",
    "CancelTask": "the task of token {number} is cancelled",
    "StartChild": "workflow {workflow} for token {number}",
    "CancelChild": "the sub-workflow of token {number} is cancelled",
    "PauseChild": "the sub-workflow of token {number} is paused",
    "ResumeChild": "the sub-workflow of token {number} is resumed",
    "OpenScope": "scope {number} of {key} opens with {total} branches",
    "ExtendScope": "scope {number} gets {count} more branches",
    "SetBranchState": "branch {index} of scope {scope} is {state}",
    "CloseScope": "scope {number} closes: {because}",
    "WriteContext": "{path} is written",
    "SetTimer": "a {kind} timer for {number}",
    "DropTimer": "the {kind} timer for {number} is dropped",
    "KeepSignal": "signal {name} is kept",
    "TakeSignal": "signal {name} is taken",
    "SendSignal": "signal {name} of token {number} is sent",
    "CountIteration": "round {count} of {transition}",
    "SetRunState": "the run is {state}",
    "ResumeFunction": "the function is resumed after {reported} entries",
    "AskTasks": "{count} tasks for operation {number}",
    "AskChild": "a run for operation {number}",
    "EndOperation": "operation {number} is {state}",
    "DropOperations": "operations are dropped: {because}",
    "RestartFunction": "the function restarts, for the {restarts}. time",
    "WarnOperations": "the function has {count} operations",
    "Considered": "{transition} {taken}: {because}",
}


class _Fields(dict[str, Any]):
    """A decision's fields; one that was left out is shown as a dash."""

    def __missing__(self, name: str) -> str:
        return "-"


def describe(decision: Mapping[str, Any]) -> str:
    """A decision in words."""
    fields = _Fields(decision)
    kind = str(fields["type"])
    if kind == "WriteContext":
        fields["path"] = ".".join(decision.get("path", ()))
    if kind == "AskTasks":
        fields["count"] = decision.get("count", 1)
    if kind == "Considered":
        fields["taken"] = "was taken" if decision.get("taken") else "was not taken"
    return WORDS.get(kind, kind).format_map(fields)


def _describe_difference(
    stored: Sequence[dict[str, Any]], decided: Sequence[dict[str, Any]], place: int
) -> str:
    if place >= len(decided):
        return f"missing: {describe(stored[place])}"
    if place >= len(stored):
        return f"in addition: {describe(decided[place])}"
    before, after = stored[place], decided[place]
    if describe(before) != describe(after):
        return f"{describe(after)}, instead of: {describe(before)}"
    name = next(
        name for name in {**before, **after} if _text(before.get(name)) != _text(after.get(name))
    )
    return f"{describe(after)}: {name} is {_shown(after, name)}, instead of {_shown(before, name)}"


def _shown(decision: Mapping[str, Any], name: str) -> str:
    text = _text(decision.get(name))
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
