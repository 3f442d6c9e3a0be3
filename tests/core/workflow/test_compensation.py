"""Compensation: what a failed or cancelled run undoes, in itself and in its sub-workflows."""

from typing import Any

from rota.core.workflow.decisions import SetRunState
from rota.core.workflow.events import ChildEnded
from tests.core.workflow.driving import Drive, Failed

SAGA = """
name: saga
initial_node: book
nodes:
  book: {task: book, compensate: unbook}
  fan: {}
  pay: {task: pay, compensate: unpay, input: {i: branch.index}}
  ship: {task: ship}
transitions:
  - {from: book, to: fan}
  - {id: pays, from: fan, to: pay, spawn_count: 2}
  - {from: pay, to: ship, synchronization: {joins_transition: pays}}
"""


def _saga(done: list[Any], **more: Any) -> dict[str, Any]:
    def note(name: str) -> Any:
        def handler(payload: Any) -> Any:
            done.append(
                (name, None if payload is None else payload.get("result", payload.get("i")))
            )
            return f"{name}ed"

        return handler

    def ship(_: Any) -> Any:
        raise Failed("no ship")

    names = ("book", "pay", "unbook", "unpay")
    return {**{name: note(name) for name in names}, "ship": ship, **more}


def test_a_failed_run_undoes_what_was_done_the_last_first() -> None:
    done: list[Any] = []
    drive = Drive(SAGA, None, _saga(done)).to_end()

    assert [name for name, _ in done] == ["book", "pay", "pay", "unpay", "unpay", "unbook"]
    assert done[-1] == ("unbook", "booked")
    assert drive.state == "failed"
    assert drive.error == {"type": "Broken", "message": "no ship", "node": "ship"}


def test_what_cannot_be_undone_is_told_and_the_rest_is_undone() -> None:
    done: list[Any] = []

    def unpay(_: Any) -> Any:
        raise Failed("kept")

    drive = Drive(SAGA, None, _saga(done, unpay=unpay)).to_end()

    assert done[-1][0] == "unbook"
    assert [one["node"] for one in drive.error["not_undone"]] == ["pay", "pay"]


def test_a_run_that_was_undone_starts_over_when_it_is_retried() -> None:
    done: list[Any] = []
    handlers = _saga(done)
    drive = Drive(SAGA, None, handlers).to_end()
    handlers["ship"] = lambda _: None
    done.clear()

    drive.retry()
    drive.to_end()

    assert drive.state == "completed"
    assert [name for name, _ in done] == ["book", "pay", "pay"]
    drive.restart()


def test_nothing_is_undone_while_a_run_is_paused() -> None:
    drive = Drive(SAGA, None, _saga([]))
    for _ in range(3):
        drive.step()
    (ship,) = drive.tasks
    drive.pause()

    drive.fail(ship)

    assert drive.state == "paused"
    assert not drive.tasks
    drive.resume()
    assert [one.task for one in drive.tasks.values()] == ["unpay"]
    assert drive.to_end().state == "failed"


def test_a_cancelled_run_undoes_what_was_done() -> None:
    done: list[Any] = []
    drive = Drive(SAGA, None, _saga(done))
    for _ in range(2):
        drive.step()

    drive.cancel("enough")

    assert drive.state == "running"
    assert drive.to_end().state == "cancelled"
    assert [name for name, _ in done] == ["book", "pay", "unpay", "unbook"]
    assert drive.error == {"type": "cancelled", "message": "enough"}
    drive.restart()


def test_a_run_that_is_cancelled_by_force_ends_at_once_and_tells_what_it_has_not_undone() -> None:
    drive = Drive(SAGA, None, _saga([]))
    for _ in range(2):
        drive.step()

    drive.cancel("enough", "force")

    assert drive.state == "cancelled"
    assert [one["node"] for one in drive.error["not_undone"]] == ["pay", "book"]
    assert not drive.tasks


def test_a_paused_run_that_is_cancelled_undoes_what_was_done() -> None:
    drive = Drive(SAGA, None, _saga([]))
    drive.step()
    drive.pause()

    drive.cancel()

    assert drive.to_end().state == "cancelled"
    assert "not_undone" not in drive.error
    drive.restart()


def test_cancelling_while_compensating_keeps_the_cause_and_compensation_goes_on() -> None:
    done: list[Any] = []
    drive = Drive(SAGA, None, _saga(done))
    for _ in range(4):
        drive.step()

    drive.cancel("enough")
    drive.cancel("really")
    drive.to_end()

    assert drive.state == "failed"
    assert drive.error == {
        "type": "Broken",
        "message": "no ship",
        "node": "ship",
        "cancelled": "enough",
    }
    assert done[-1][0] == "unbook"
    drive.restart()


def test_cancelling_by_force_while_compensating_keeps_the_cause_and_tells_what_is_left() -> None:
    drive = Drive(SAGA, None, _saga([]))
    for _ in range(5):
        drive.step()
    assert len(drive.tasks) == 1

    drive.cancel("enough", "force")

    assert drive.state == "failed"
    assert not drive.tasks
    assert (drive.error["type"], drive.error["cancelled"]) == ("Broken", "enough")
    assert [one["node"] for one in drive.error["not_undone"]] == ["pay", "book"]
    drive.restart()


def test_a_journal_of_an_earlier_version_cancels_at_once_and_undoes_nothing() -> None:
    drive = Drive(SAGA, None, _saga([]), rules=1)
    for _ in range(4):
        drive.step()

    drive.cancel(mode=None)

    assert drive.state == "cancelled"
    assert drive.error == {"type": "cancelled", "message": "cancelled"}
    assert not drive.tasks


# --- sub-workflows --------------------------------------------------------------------------------

ORDER = """
name: order
initial_node: pay
nodes: {pay: {task: pay, compensate: unpay}, ship: {task: ship}}
transitions: [{from: pay, to: ship}]
output: {paid: nodes.pay.result}
"""
BESIDE = """
name: beside
initial_node: book
nodes: {book: {task: book, compensate: unbook}, order: {workflow: order}, other: {task: other}}
transitions: [{from: book, to: order}, {from: book, to: other}]
"""
AFTER = """
name: after
initial_node: book
nodes: {book: {task: book, compensate: unbook}, order: {workflow: order}, other: {task: other}}
transitions: [{from: book, to: order}, {from: order, to: other}]
"""


def _paid(drive: Drive) -> Drive:
    """The child of a run, after its payment."""
    drive.step()
    (child,) = drive.children.values()
    child.answer(1)
    return child


def test_a_sub_workflow_under_way_is_cancelled_and_undone_before_its_parent() -> None:
    done: list[Any] = []
    drive = Drive(BESIDE, None, _saga(done), workflows={"order": ORDER})
    child = _paid(drive)
    (other,) = drive.at("other")

    drive.fail(other)

    assert drive.state == child.state == "running"
    assert not drive.tasks
    assert drive.to_end().state == "failed"
    assert child.state == "cancelled"
    assert [name for name, _ in done] == ["book", "pay", "unpay", "unbook"]
    assert drive.error == {"type": "Broken", "message": "broken", "node": "other"}
    drive.restart()


def test_a_completed_sub_workflow_is_undone_in_its_place() -> None:
    done: list[Any] = []
    handlers = _saga(done, ship=lambda _: "shipped")
    drive = Drive(AFTER, None, handlers, workflows={"order": ORDER})
    while not drive.at("other"):
        drive.step()

    drive.fail(drive.at("other")[0])
    (undoing,) = drive.tasks.values()
    drive.to_end()

    assert (undoing.task, undoing.payload["node"]) == ("unpay", "pay")
    assert undoing.payload["result"] == "payed"
    assert [name for name, _ in done] == ["book", "pay", "unpay", "unbook"]
    drive.restart()


def test_a_sub_workflow_is_not_undone_if_its_node_has_a_compensating_task() -> None:
    done: list[Any] = []
    handlers = _saga(done, ship=lambda _: "shipped", refund=lambda _: done.append(("refund", None)))
    text = AFTER.replace("{workflow: order}", "{workflow: order, compensate: refund}")
    drive = Drive(text, None, handlers, workflows={"order": ORDER})
    while not drive.at("other"):
        drive.step()

    drive.fail(drive.at("other")[0])
    drive.to_end()

    assert [name for name, _ in done] == ["book", "pay", "refund", "unbook"]


def test_what_a_sub_workflow_could_not_undo_is_listed_by_its_parent() -> None:
    def unpay(_: Any) -> Any:
        raise Failed("kept")

    drive = Drive(BESIDE, None, _saga([], unpay=unpay), workflows={"order": ORDER})
    _paid(drive)
    drive.fail(drive.at("other")[0])
    drive.to_end()

    error = {"type": "Broken", "message": "kept"}
    assert drive.error["not_undone"] == [{"node": "order.pay", "error": error}]


def test_what_a_failed_sub_workflow_could_not_undo_is_listed_by_its_parent() -> None:
    def unpay(_: Any) -> Any:
        raise Failed("kept")

    drive = Drive(AFTER, None, _saga([], unpay=unpay), workflows={"order": ORDER}).to_end()

    assert (drive.error["message"], drive.error["node"]) == ("no ship", "order")
    assert [one["node"] for one in drive.error["not_undone"]] == ["order.pay"]


def test_runs_inside_runs_are_undone_from_the_inside_out() -> None:
    done: list[Any] = []
    outer = AFTER.replace("name: after", "name: outer").replace("workflow: order", "workflow: mid")
    middle = AFTER.replace("name: after", "name: mid")
    handlers = _saga(done, ship=lambda _: "shipped", other=lambda _: "done")
    drive = Drive(outer, None, handlers, workflows={"order": ORDER, "mid": middle})
    while not drive.at("other"):
        drive.step()

    drive.fail(drive.at("other")[0])
    drive.to_end()

    names = [name for name, _ in done]
    assert names == ["book", "book", "pay", "unpay", "unbook", "unbook"]
    drive.restart()


def test_cancelling_a_run_undoes_its_sub_workflows_first() -> None:
    done: list[Any] = []
    drive = Drive(BESIDE, None, _saga(done), workflows={"order": ORDER})
    child = _paid(drive)

    drive.cancel("enough")
    drive.to_end()

    assert (drive.state, child.state) == ("cancelled", "cancelled")
    assert [name for name, _ in done] == ["book", "pay", "unpay", "unbook"]


def test_cancelling_by_force_reaches_sub_workflows_that_undo_and_lists_their_work() -> None:
    drive = Drive(BESIDE, None, _saga([]), workflows={"order": ORDER})
    child = _paid(drive)
    drive.fail(drive.at("other")[0])
    assert child.tasks

    drive.cancel("enough", "force")

    assert (drive.state, child.state) == ("failed", "cancelled")
    assert [one["node"] for one in drive.error["not_undone"]] == ["order.pay", "book"]
    assert (drive.error["type"], drive.error["cancelled"]) == ("Broken", "enough")
    drive.restart()


def test_the_work_of_a_sub_workflow_that_lost_a_join_is_undone_if_the_run_fails_later() -> None:
    text = """
name: race
initial_node: start
nodes: {start: {}, order: {workflow: order}, other: {task: other}, next: {task: next}}
transitions:
  - {from: start, to: order, sibling_group: race}
  - {from: start, to: other, sibling_group: race}
  - {from: order, to: next, synchronization: {wait_for: any, joins_transition: race}}
  - {from: other, to: next, synchronization: {wait_for: any, joins_transition: race}}
"""
    done: list[Any] = []
    drive = Drive(text, None, _saga(done), workflows={"order": ORDER})
    (child,) = drive.children.values()
    child.answer(1)
    drive.finish(drive.at("other")[0])
    assert child.state == "cancelled"

    drive.fail(drive.at("next")[0])
    drive.to_end()

    assert [name for name, _ in done] == ["pay", "unpay"]
    drive.restart()


def test_a_sub_workflow_completes_after_those_of_the_branches_that_it_cancels() -> None:
    race = """
name: race
initial_node: start
nodes: {start: {}, order: {workflow: order}, other: {task: other}, end: {}}
transitions:
  - {from: start, to: order, sibling_group: race}
  - {from: start, to: other, sibling_group: race}
  - {from: order, to: end, synchronization: {wait_for: any, joins_transition: race}}
  - {from: other, to: end, synchronization: {wait_for: any, joins_transition: race}}
"""
    outer = """
name: outer
initial_node: race
nodes: {race: {workflow: race}, next: {task: next}}
transitions: [{from: race, to: next}]
"""
    done: list[Any] = []
    drive = Drive(outer, None, _saga(done), workflows={"race": race, "order": ORDER})
    (racing,) = drive.children.values()
    (order,) = racing.children.values()
    order.answer(1)
    racing.finish(racing.at("other")[0])
    assert (racing.state, order.state) == ("completed", "cancelled")
    event, decisions = racing.journal[-1]
    assert isinstance(event, ChildEnded)
    assert any(isinstance(one, SetRunState) for one in decisions)
    drive.child_step(next(iter(drive.children)))

    drive.fail(drive.at("next")[0])
    drive.to_end()

    assert [name for name, _ in done] == ["pay", "unpay"]
    drive.restart()


def test_a_retry_goes_on_inside_a_sub_workflow_that_the_failure_has_cancelled() -> None:
    order = ORDER.replace(", compensate: unpay", "")
    text = BESIDE.replace(", compensate: unbook", "")
    handlers = _saga([], other=lambda _: 1, ship=lambda _: 2)
    drive = Drive(text, None, handlers, workflows={"order": order})
    child = _paid(drive)
    drive.fail(drive.at("other")[0])
    assert (drive.state, child.state) == ("failed", "cancelled")

    drive.retry()

    assert [one.task for one in child.tasks.values()] == ["ship"]
    assert drive.to_end().state == child.state == "completed"
    drive.restart()


def test_no_timer_of_a_join_disturbs_the_undoing() -> None:
    text = SAGA.replace("joins_transition: pays", "joins_transition: pays, timeout_ms: 5")
    drive = Drive(text, None, _saga([]))
    drive.step()
    drive.fail(min(drive.tasks))

    assert not drive.run.timers
    assert [one.task for one in drive.tasks.values()] == ["unbook"]
