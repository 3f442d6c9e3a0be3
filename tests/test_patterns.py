"""Every workflow pattern of examples/patterns, run on a coordinator in the testing mode.

A case is a list of steps. A step is what happens, and after `>` the tasks that are at work then:

    > a        the run starts
    a > b c    the oldest task of that name succeeds
    a=3 > b    ... with this result, as JSON
    !go > b    a signal
    -b > c     a caller cancels that task
    +[1] > b   a caller adds branches for these items to the first scope; with a dot, the last ones
    cancel >   a caller cancels the run
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct

import rota
from rota import Rota, RunHandle
from rota.messages import LeaseRequest, LeaseView, ResultItem, WorkerRegistration
from rota.sdk.client import calls, run_calls
from rota.testing import TestCoordinator

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "patterns"
TABLE = ROOT / "docs" / "explanation" / "workflow-patterns.md"
FILES = {int(path.name[:2]): path for path in sorted(FOLDER.glob("*.yaml"))}
WORKER = "worker"


class Case(Struct, frozen=True):
    number: int
    steps: str
    input: Mapping[str, Any] = {}
    ends: str = "completed"
    output: Any = None  # None: not checked


CASES = [
    Case(1, "> a; a > b; b >"),
    Case(2, "> a; a > b c; c > b; b >"),
    Case(3, "> a; a > b c; c > b; b > d; d >"),
    Case(4, "> a; a > b; b >", {"is_large": True}),
    Case(4, "> a; a > c; c >", {"is_large": False}),
    Case(5, "> a; a > b; b > d; d >", {"is_large": True}),
    Case(5, "> a; a > c; c > d; d >", {"is_large": False}),
    Case(6, "> a; a > b e; e > b; b >", {"wanted": ["b", "e"]}),
    Case(6, "> a; a > b c e; c > b e; b > e; e >", {"wanted": ["b", "c", "e"]}),
    Case(6, "> a; a >", {"wanted": []}),
    Case(7, "> a; a > b e; e > b; b > d; d >", {"wanted": ["b", "e"]}),
    Case(7, "> a; a > c; c > d; d >", {"wanted": ["c"]}),
    Case(8, "> a; a > b c; b > c d; c > d d; d > d; d >"),
    Case(9, "> a; a > b c; c > b d; b > d; d >"),
    Case(10, "> a; a > c; c > b; b > c; c > d; d > b; b > c; c > d; d >", {"from_b": False}),
    Case(10, "> a; a > b; b > c; c > b; b > c; c > d; d > b; b > c; c > d; d >", {"from_b": True}),
    Case(11, "> a; a > b c; b > c; c >"),
    Case(12, "> a; a > b b b e; e > b b b; b > b b; b > b; b >"),
    Case(13, "> a; a > b b; b > b; b > d; d >"),
    Case(
        14,
        '> a; a=["x","y","z"] > b b b; b=1 > b b; b=2 > b; b=3 > d; d >',
        output={"results": [1, 2, 3]},
    ),
    Case(14, "> a; a=[] > d; d >", output={"results": []}),
    Case(
        15,
        '> a; a=["x"] > b; +["y","z"] > b b b; b=1 > b b; b=2 > b; b=3 >; +["w"] > b; '
        "+[]. > b; b=4 > d; d >",
        output={"results": [1, 2, 3, 4]},
    ),
    Case(16, "> a; a >; !paid > ship; ship >"),
    Case(16, "> a; a >; !refused > close; close >"),
    Case(17, "> a; a > b; b > c; c > e; e > d; d >"),
    Case(
        18,
        "> a; !request > a; a >; !request > serve; !request > serve serve; serve > serve; "
        "!next > d serve; !request > d serve; serve > d; d >",
    ),
    Case(18, "> a; a >; !next > d; !request > d; d >"),
    Case(19, "> a; a > b; -b > c; c >"),
    Case(19, "> a; a > b; b >"),
    Case(20, "> a; a > b b c; cancel >", ends="cancelled"),
    Case(20, '> a; a > b b c; c="stop" >', ends="cancelled"),
    Case(21, '> a; a > b; b="again" > b; b="again" > b; b > d; d >'),
    Case(22, "> work; work > work; work > work; work >", {"depth": 2}),
    Case(23, "> a; !trigger > a; a >; !trigger > b; b >"),
    Case(24, "> a; !trigger > a; a > b; !trigger > b b; b > b; !stop > b; b >"),
    Case(24, "> a; a >; !trigger > b; b >; !trigger > b; b >; !stop >"),
    Case(25, "> a; a > b; b > e e; e > e; !stop > d; d >"),
    Case(25, "> a; a > b; b > e e; e > e; e > d; d >"),
    Case(26, "> a; a > b b b; b > b b; !stop > d; d >"),
    Case(26, "> a; a > b b b; b > b b; b > b; b > d; d >"),
    Case(27, "> a; a > b b b; b > b b; !enough > d; d >", output={"through": [0]}),
    Case(28, "> a; a > b c; b > b c d; b > c d; d > c; c > c d; c > d; d >"),
    Case(29, "> a; a > b c; c > d; d >"),
    Case(30, "> a; a > b c e; e > b c; b > c d; c > d; d >"),
    Case(
        31,
        "> a; a > b c e; b > b c e; b > c e; c > c d e; d > c e; c > e; e > d e; e > d; d >",
    ),
    Case(32, "> a; a > b c e; e > b c; b > d; d >"),
    Case(33, "> a; a > b c; b > b c; b > c; c > c d; d > c; c > d; d >"),
    Case(34, "> a; a > b b b; b > b b; b > b d; b > d; d >"),
    Case(35, "> a; a > b b b; b > b b; b > d; d >"),
    Case(
        36,
        '> judge judge judge judge; judge="yes" > judge judge judge; judge="no" > judge judge; '
        'judge="yes" > d; d >',
        {"judges": ["a", "b", "c", "d"]},
        output={"verdicts": ["yes", "no", "yes"]},
    ),
    Case(
        36,
        '> judge judge; judge="no" > judge; judge="yes" > d; d >',
        {"judges": ["a", "b"]},
        output={"verdicts": ["no", "yes"]},
    ),
    Case(37, '> a; a > b c; b="past" > c e; c > e; e > d; d >'),
    Case(37, "> a; a > b c; b > c; c > d; d >"),
    Case(38, '> a; a > b c; c > b; b="again" > b; b > d; d >', {"with_c": True}),
    Case(38, '> a; a > b; b="again" > b; b > d; d >', {"with_c": False}),
    Case(39, "> a; a > b; b > c; c > x; x > y; y >"),
    Case(40, "> a; a > b; b > c; c > d; d >"),
    Case(41, "> a; a > b b b; b > b b; b > b; b > d; d >"),
    Case(42, "> a; a > b b b; b > b b d; d > b b; b > b d; b > d d; d > d; d >"),
    Case(43, "> a; a > b c; c >"),
]


class PatternRun:
    """A run of a pattern, and the one worker that serves it."""

    def __init__(self, coordinator: TestCoordinator, case: Case) -> None:
        self.coordinator = coordinator
        self.client = coordinator.client
        app = Rota("http://127.0.0.1:1")
        coordinator.attach(app)
        self.workflow = app.workflow(FILES[case.number])
        tasks = {node.task for node in self.workflow.definition.nodes.values() if node.task}
        registration = WorkerRegistration(
            worker_id=WORKER, node_id=WORKER, tasks=sorted(tasks), max_concurrent_tasks=100
        )
        self.incarnation = self.client.run(calls.register_worker(registration)).incarnation
        self.leases: list[LeaseView] = []
        self.run: RunHandle = self.workflow.start(dict(case.input))

    def happen(self, what: str) -> None:
        if not what:
            return  # the start
        if what == "cancel":
            self.run.cancel()
        elif what[0] == "!":
            self.run.signal(what[1:])
        elif what[0] == "+":
            items = msgspec.json.decode(what[1:].rstrip("."))
            self.run.add_branches(1, items, last=what.endswith("."))
        elif what[0] == "-":
            self.client.run(calls.cancel_task(self._lease(what[1:]).task_id))
        else:
            name, _, result = what.partition("=")
            lease = self._lease(name)
            item = ResultItem(
                task_id=lease.task_id, fence=lease.fence, ok=True, result=Raw(result or "null")
            )
            report = calls.report_results(WORKER, incarnation=self.incarnation, results=[item])
            (outcome,) = self.client.run(report).outcomes
            assert outcome.outcome == "accepted"
            self.leases.remove(lease)

    def _lease(self, name: str) -> LeaseView:
        return next(one for one in self.leases if one.name == name)

    def at_work(self) -> list[str]:
        """The tasks that run when the worker has taken all that it can get."""
        self.coordinator.clock.advance(ms=1)  # slices are taken
        request = LeaseRequest(incarnation=self.incarnation, max=100)
        self.leases += self.client.run(calls.lease(WORKER, request)).leases
        running = {one.id for one in self.coordinator.tasks(state="running")}
        self.leases = [one for one in self.leases if one.task_id in running]
        return sorted(one.name for one in self.leases)


@pytest.fixture
def coordinator() -> Iterator[TestCoordinator]:
    with TestCoordinator() as one:
        yield one


@pytest.mark.parametrize("case", CASES, ids=lambda case: FILES[case.number].stem)
def test_a_pattern_completes_its_nodes_as_it_should(
    coordinator: TestCoordinator, case: Case
) -> None:
    pattern = PatternRun(coordinator, case)
    for step in case.steps.split(";"):
        what, _, expected = step.partition(">")

        pattern.happen(what.strip())

        assert pattern.at_work() == expected.split(), step

    view = pattern.run.view()
    assert view.state == case.ends
    assert case.output is None or view.output == case.output
    for run in coordinator.client.run(run_calls.list_runs(limit=10)).items:
        assert _replays(coordinator, run.id, pattern)


def _replays(coordinator: TestCoordinator, run_id: str, pattern: PatternRun) -> bool:
    """Whether the journal of a run, child runs included, leads to the same decisions."""
    journal = RunHandle(run_id, lambda: coordinator.client).journal()
    return not rota.replay(msgspec.json.encode({"items": journal}), pattern.workflow)


@pytest.mark.parametrize("path", FILES.values(), ids=lambda path: path.stem)
def test_a_pattern_is_named_after_its_file_and_says_what_it_shows(path: Path) -> None:
    text = path.read_text()

    assert re.match(r"# \S.*\n(# .*\n)*name: " + path.stem[3:] + "\n", text)
    assert Rota("http://127.0.0.1:1").workflow(text).yaml()


def test_every_pattern_has_a_case() -> None:
    assert {case.number for case in CASES} == set(FILES)


def test_the_table_links_every_pattern_that_is_offered() -> None:
    row = r"^\| (\d+) \| (?:\[[^]]+\]\(\.\./\.\./examples/patterns/([^)]+)\)|[^|]+) \| ([^|]+) \|"
    rows = re.findall(row, TABLE.read_text(), re.MULTILINE)

    assert [int(number) for number, _, _ in rows] == list(range(1, 44))
    for number, name, offered in rows:
        path = FILES.get(int(number))
        assert (path is None, name) == (offered == "no", "" if path is None else path.name)
