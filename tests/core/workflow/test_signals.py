"""Signals and approvals: which token they reach, and which are kept."""

from rota.core.limits import MAX_SIGNAL_KEYS
from rota.core.workflow.decisions import KeepSignal
from rota.core.workflow.events import Signalled
from rota.core.workflow.runtime import signals
from tests.core.workflow.driving import Drive

ROUNDS = """
name: rounds
initial_node: draft
nodes: {draft: {task: draft}, ask: {approval: true}, publish: {task: publish}}
transitions:
  - {from: draft, to: ask}
  - {from: ask, to: draft, max_iterations: 1}
  - {from: ask, to: publish, priority: 2}
"""
TWO = """
name: two
initial_node: start
nodes: {start: {}, ask: {approval: true}, after: {}}
transitions:
  - {id: fan, from: start, to: ask, spawn_count: 2}
  - {from: ask, to: after, synchronization: {joins_transition: fan, merge: {target: output.said}}}
"""


def _asking(drive: Drive) -> int | None:
    return signals.addressee(drive.run, "ask", None)


def test_a_second_yes_does_not_approve_the_next_round() -> None:
    drive = Drive(ROUNDS, None, {"draft": lambda _: 1, "publish": lambda _: 2})
    drive.step()
    first = _asking(drive)
    yes = Signalled(2_000, "ask", payload=True, token=first)
    drive.feed(yes)
    assert signals.is_unasked_approval(drive.run, "ask", first)
    assert signals.is_unasked_approval(drive.run, "ask", None)

    drive.step()
    drive.feed(yes)

    assert _asking(drive) not in {None, first}
    assert not drive.of_kind(KeepSignal)
    drive.feed(Signalled(2_001, "ask", payload=True, token=_asking(drive)))
    assert drive.to_end().state == "completed"
    drive.restart()


def test_an_approval_takes_no_signal_that_came_before_it_asked() -> None:
    drive = Drive(ROUNDS, None, {"draft": lambda _: 1})
    drive.signal("ask", payload=True)

    drive.step()

    assert _asking(drive) is not None
    drive.restart()


def test_a_run_of_an_earlier_version_takes_the_approval_that_it_has_kept() -> None:
    drive = Drive(ROUNDS, None, {"draft": lambda _: 1}, rules=1)
    drive.signal("ask", payload=True)

    drive.step()

    assert _asking(drive) is None
    assert len(drive.tasks) == 1


def test_a_signal_reaches_the_token_that_it_names() -> None:
    drive = Drive(TWO)
    first, second = drive.at("ask")

    drive.feed(Signalled(2_000, "ask", {"approved": True, "by": "b"}, token=second))

    assert drive.at("ask") == [first]
    drive.feed(Signalled(2_001, "ask", {"approved": True, "by": "a"}))
    assert [one["by"] for one in drive.output["said"]] == ["a", "b"]


def test_a_signal_that_an_approval_and_a_wait_share_is_kept() -> None:
    text = """
name: shared
initial_node: start
nodes: {start: {task: start}, ask: {approval: true}, wait: {wait_for: {event: ask}}}
transitions: [{from: start, to: ask, condition: "false"}, {from: start, to: wait}]
"""
    drive = Drive(text, None, {"start": lambda _: 1})

    assert not signals.is_unasked_approval(drive.run, "ask", None)
    drive.signal("ask", 1)
    assert drive.to_end().state == "completed"


def test_a_run_remembers_the_newest_keys_of_signals() -> None:
    drive = Drive("{name: w, initial_node: w, nodes: {w: {task: w}}}")

    for number in range(MAX_SIGNAL_KEYS + 1):
        drive.feed(Signalled(2_000 + number, "go", key=f"k{number}"))

    assert len(drive.run.signal_keys) == MAX_SIGNAL_KEYS
    assert "k0" not in drive.run.signal_keys
    drive.restart()
