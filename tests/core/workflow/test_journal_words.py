"""Entries of a journal speak of nodes and branches."""

import pytest

from rota.core.workflow import decisions as module
from rota.core.workflow.decisions import RunDecision
from rota.core.workflow.events import (
    BranchesAdded,
    ChildEnded,
    RunCancelRequested,
    RunEvent,
    ScopeEndRequested,
    TaskEnded,
    TimerFired,
)
from rota.core.workflow.journal_words import WORDS, JournalNames, describe, event_words
from rota.core.workflow.replay import ReplayedEntry, encoded, replay
from rota.core.workflow.states import BranchState, TokenState
from tests.core.workflow.driving import Drive, defined
from tests.core.workflow.test_nesting import ECHO, GROUPS, NESTED


def learned() -> JournalNames:
    names = JournalNames()
    names.learn(
        [
            module.CreateToken(1, "begin"),
            module.OpenScope(1, "rows", "extract", 1, 180),
            module.CreateToken(172, "extract", 1, ((1, 171),)),
            module.OpenScope(2, "parts", "part", 172, 2, ((1, 171),)),
            module.CreateToken(200, "part", 172, ((1, 171), (2, 0))),
            module.CreateToken(201, "extract", stack=((1, 171),), compensates=172),
        ]
    )
    return names


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (TaskEnded(0, 1, ok=True), "begin done"),
        (TaskEnded(0, 172, ok=True), "extract[171] done"),
        (TaskEnded(0, 200, ok=False, error={"message": "no disk"}), "part[171][0] failed: no disk"),
        (TaskEnded(0, 172, ok=False, cancelled=True), "extract[171] cancelled"),
        (TaskEnded(0, 201, ok=True), "the undoing of extract[171] done"),
        (ChildEnded(0, 172, ok=False), "the child run of extract[171] failed: no reason given"),
        (TimerFired(0, "sleep", 172), "extract[171] has slept"),
        (TimerFired(0, "join", 2), "the time limit of the join of parts[171] has passed"),
        (TimerFired(0, "run", 0), "the time limit of the run has passed"),
        (ScopeEndRequested(0, 1, "cancel", "late"), "rows was cancelled: late"),
        (BranchesAdded(0, 2, [1]), "1 branch added to parts[171]"),
        (
            BranchesAdded(0, 1, [1, 2], token=172, is_last=True),
            "2 branches added to rows by extract[171], the last ones",
        ),
        (RunCancelRequested(0), "the run was cancelled"),
    ],
)
def test_an_event_names_its_node_and_branch(event: RunEvent, words: str) -> None:
    assert event_words(event, learned()) == words


def test_an_event_says_how_many_branches_are_done() -> None:
    words = event_words(TaskEnded(0, 172, ok=True), learned(), (165, 180))

    assert words == "extract[171] done, 165 of 180"


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (module.CreateToken(172, "extract", 1, ((1, 171),)), "extract[171] begins"),
        (module.DispatchTask(172, "pull"), "task pull is queued for extract[171]"),
        (
            module.SetTokenState(172, TokenState.WAITING_FOR_SIBLINGS),
            "extract[171] is waiting for siblings",
        ),
        (module.OpenScope(1, "rows", "extract", 1, 180), "rows fans out into 180 branches"),
        (
            module.SetBranchState(1, 171, BranchState.ARRIVED),
            "branch 171 of rows has arrived",
        ),
        (module.CloseScope(2, "all are in"), "parts[171] closes: all are in"),
        (module.SetTimer("join", 1, 5), "a join timer is set for the join of rows"),
        (module.SetTimer("run", 0, 5), "a run timer is set for the run"),
    ],
)
def test_a_decision_names_its_node_and_branch(decision: RunDecision, words: str) -> None:
    (stored,) = encoded([decision])

    assert describe(stored, learned()) == words


def test_every_kind_of_decision_has_its_words() -> None:
    kinds = {kind.__name__ for kind in RunDecision.__args__}

    assert set(WORDS) == kinds


def test_no_entry_of_a_run_mentions_the_number_of_a_token() -> None:
    drive = Drive(NESTED, GROUPS, ECHO, seed=3).to_end()
    names = JournalNames()

    for event, decided in drive.journal:
        names.learn(decided)
        words = [event_words(event, names), *(describe(one, names) for one in encoded(decided))]
        assert not [one for one in words if "token" in one or "scope" in one]


def test_a_replay_names_the_branch_that_differs() -> None:
    drive = Drive(NESTED, GROUPS, ECHO, seed=3).to_end()
    entries = [
        ReplayedEntry(number=number, event=event, decisions=encoded(decided))
        for number, (event, decided) in enumerate(drive.journal, start=1)
    ]
    place, stored = next(
        (place, one)
        for place, entry in enumerate(entries)
        for one in entry.decisions
        if one["type"] == "DispatchTask"
    )
    stored["payload"] = "another"

    (found,) = replay(defined(NESTED), entries)

    assert found.number == place + 1
    assert found.text == event_words(entries[place].event, JournalNames())
    assert "[0]" in found.words
    assert "token" not in found.words
