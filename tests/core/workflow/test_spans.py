"""The spans of joined tasks reach the task after the join, and only that one."""

from msgspec import UNSET

from rota.core import limits
from rota.core.workflow.decisions import ResumeFunction
from rota.core.workflow.events import FunctionStopped, RunStarted, TaskEnded
from rota.core.workflow.functions.model import FunctionReport
from rota.core.workflow.functions.reducer import new_run, reduce
from tests.core.workflow.driving import Drive
from tests.core.workflow.fans import ECHO, fan, items
from tests.core.workflow.scripts import FUNCTION
from tests.core.workflow.test_functions import call


def span(number: int) -> str:
    return f"00-{7:032x}-{number:016x}-01"


def finish_all(drive: Drive, name: str) -> None:
    """Finish the waiting tasks of a name; each has the span of its token's number."""
    for number in sorted(drive.tasks):
        if drive.tasks[number].task == name:
            drive.finish(number, traceparent=span(number))


def links_of(drive: Drive, name: str) -> list[tuple[str, ...]]:
    return [one.links for one in drive.tasks.values() if one.task == name]


def test_the_task_after_a_join_links_to_the_last_task_of_each_branch() -> None:
    drive = Drive(fan(), items(*"abc"), ECHO)
    joined = tuple(span(number) for number in sorted(drive.tasks))

    finish_all(drive, "work")

    assert links_of(drive, "after") == [joined]


def test_a_quorum_links_to_the_branches_that_have_arrived() -> None:
    drive = Drive(fan(", wait_for: {m_of_n: 2}"), items(*"abc"), ECHO)
    first, _, third = sorted(drive.tasks)

    drive.finish(third, "c", traceparent=span(third))
    drive.finish(first, "a", traceparent=span(first))

    assert links_of(drive, "after") == [(span(first), span(third))]


def test_a_join_of_many_branches_links_to_the_first_ones() -> None:
    drive = Drive(fan(), items(*range(100)), ECHO)
    first = sorted(drive.tasks)[: limits.MAX_TRACE_LINKS]

    finish_all(drive, "work")

    assert links_of(drive, "after") == [tuple(map(span, first))]


def test_tasks_have_no_links_where_workers_report_no_spans() -> None:
    drive = Drive(fan(), items(*"ab"), ECHO)
    for number in sorted(drive.tasks):
        drive.finish(number)

    assert links_of(drive, "after") == [()]
    assert drive.run.spans.followed == {}
    assert drive.run.last_span is UNSET


CHAIN = """
name: chain
initial_node: start
nodes:
  start: {}
  prepare: {}
  work: {task: work}
  more: {task: more}
  gathered: {}
  wait: {sleep_ms: 10}
  after: {task: after}
  last: {task: last}
transitions:
  - {id: fan, from: start, to: prepare, foreach: input.items}
  - {from: prepare, to: work}
  - {from: work, to: more}
  - {from: more, to: gathered, synchronization: {joins_transition: fan}}
  - {from: gathered, to: wait}
  - {from: wait, to: after}
  - {from: after, to: last}
"""


def test_links_pass_nodes_without_a_task_and_end_with_the_first_that_has_one() -> None:
    drive = Drive(CHAIN, items(*"ab"))
    finish_all(drive, "work")
    assert links_of(drive, "more") == [(), ()]
    joined = tuple(span(number) for number in sorted(drive.tasks))

    finish_all(drive, "more")
    drive.turn_clock()
    assert links_of(drive, "after") == [joined]
    finish_all(drive, "after")

    assert links_of(drive, "last") == [()]


NESTED = """
name: nested
initial_node: start
nodes:
  start: {}
  split: {}
  work: {task: work}
  inner: {}
  again: {}
  fanned: {task: fanned}
transitions:
  - {id: rows, from: start, to: split, foreach: input.items}
  - {id: cells, from: split, to: work, spawn_count: "2"}
  - {from: work, to: inner, synchronization: {joins_transition: cells}}
  - {from: inner, to: again, synchronization: {joins_transition: rows}}
  - {id: next, from: again, to: fanned, spawn_count: "2"}
"""


def test_a_join_of_joins_links_to_their_tasks_and_so_does_each_branch_after_it() -> None:
    drive = Drive(NESTED, items(*"ab"))
    joined = {span(number) for number in drive.tasks}
    assert len(joined) == 4

    finish_all(drive, "work")

    first, second = links_of(drive, "fanned")
    assert set(first) == joined
    assert first == second


def test_nothing_is_remembered_of_tokens_that_have_ended() -> None:
    drive = Drive(NESTED, items(*"ab"))
    finish_all(drive, "work")
    finish_all(drive, "fanned")

    assert drive.state == "completed"
    assert drive.run.spans.followed == {}


def test_a_function_links_to_the_tasks_that_have_ended_since_it_was_resumed() -> None:
    run = new_run(FUNCTION, None)
    reduce(run, RunStarted(0, None))
    report = FunctionReport(operations=[call("a#1"), call("b#1")], waits=[["a#1", "b#1"]])
    reduce(run, FunctionStopped(1, report, span(9)))

    reduce(run, TaskEnded(2, 2, ok=True, traceparent=span(2)))
    decisions = reduce(run, TaskEnded(3, 1, ok=True, traceparent=span(1)))
    assert ResumeFunction(2, (span(2), span(1))) in decisions
    report = FunctionReport(after=2, operations=[call("c#1")], waits=[["c#1"]])
    reduce(run, FunctionStopped(4, report, span(10)))
    decisions = reduce(run, TaskEnded(5, 5, ok=True, traceparent=span(3)))

    assert ResumeFunction(3, (span(3),)) in decisions
