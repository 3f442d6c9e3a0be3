"""Compensation: the completed nodes that a failed run undoes."""

from typing import Any

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


def test_a_cancelled_run_undoes_nothing_and_stops_undoing() -> None:
    drive = Drive(SAGA, None, _saga([]))
    for _ in range(4):
        drive.step()
    assert drive.tasks

    drive.cancel()

    assert drive.state == "cancelled"
    assert not drive.tasks


def test_no_timer_of_a_join_disturbs_the_undoing() -> None:
    text = SAGA.replace("joins_transition: pays", "joins_transition: pays, timeout_ms: 5")
    drive = Drive(text, None, _saga([]))
    drive.step()
    drive.fail(min(drive.tasks))

    assert not drive.run.timers
    assert [one.task for one in drive.tasks.values()] == ["unbook"]
