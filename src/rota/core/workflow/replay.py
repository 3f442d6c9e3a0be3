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
from rota.core.workflow.functions.run import CodeRun
from rota.core.workflow.journal_words import JournalNames, describe, event_words
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
    text: str = ""  # the event for people


def replay(definition: AnyDefinition, entries: Iterable[ReplayedEntry]) -> list[Difference]:
    """The entries of a run's journal that this definition decides differently."""
    program = program_of(definition, 1)  # no decision depends on the number of the version
    run: AnyRun | None = None
    names = JournalNames()
    differences = []
    for entry in entries:
        if run is None:
            started = entry.event
            run = new_run(program, started.input if isinstance(started, RunStarted) else None)
        try:
            decisions = reduce(run, entry.event)
        except Exception as error:  # noqa: BLE001 - the journal is of another definition, or broken
            words = f"the event cannot be taken up: {type(error).__name__}: {error}"
            differences.append(_difference(entry, [], 0, words, event_words(entry.event, names)))
            return differences
        decided = encoded(decisions)
        names.learn(decisions)
        if isinstance(run, CodeRun):
            names.tokens.update(run.tokens)
        place = _first_difference(entry.decisions, decided)
        if place is not None:
            words = _describe_difference(entry.decisions, decided, place, names)
            text = event_words(entry.event, names)
            differences.append(_difference(entry, decided, place, words, text))
    return differences


def encoded(decisions: Sequence[RunDecision]) -> list[dict[str, Any]]:
    """Decisions as a journal holds them."""
    builtins: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(decisions))
    return builtins


def _difference(
    entry: ReplayedEntry, decided: list[dict[str, Any]], place: int, words: str, text: str
) -> Difference:
    return Difference(
        number=entry.number,
        event=entry.event,
        stored=entry.decisions,
        decided=decided,
        place=place,
        words=words,
        text=text,
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


def _describe_difference(
    stored: Sequence[dict[str, Any]],
    decided: Sequence[dict[str, Any]],
    place: int,
    names: JournalNames,
) -> str:
    if place >= len(decided):
        return f"missing: {describe(stored[place], names)}"
    if place >= len(stored):
        return f"in addition: {describe(decided[place], names)}"
    before, after = stored[place], decided[place]
    text = describe(after, names)
    if describe(before, names) != text:
        return f"{text}, instead of: {describe(before, names)}"
    name = next(
        name for name in {**before, **after} if _text(before.get(name)) != _text(after.get(name))
    )
    return f"{text}: {name} is {_shown(after, name)}, instead of {_shown(before, name)}"


def _shown(decision: Mapping[str, Any], name: str) -> str:
    text = _text(decision.get(name))
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
