import contextlib
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from rota.cli.render.output import ExitCode
from rota.cli.render.overview import TopView, shares, summary, waiting_rows, worker_rows
from rota.cli.render.top import draw_top
from rota.core.workers.model import Health, WorkerState
from rota.core.workflow.states import RunState
from rota.messages import (
    BacklogView,
    LeaderView,
    Overview,
    QueueView,
    RunView,
    ShardCounts,
    WaitView,
    WhyView,
    WorkerMetrics,
    WorkerRegistration,
    WorkerView,
)
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.cli.conftest import Command, document
from tests.cli.processes import COMMAND, TIMEOUT_S, environment, running

NOW_MS = 1_800_000_000_000


def worker(name: str, health: Health = Health.HEALTHY, *, busy: int = 0) -> WorkerView:
    return WorkerView(
        id=name,
        node_id="here",
        capabilities=(),
        max_concurrent_tasks=4,
        current_tasks=busy,
        health=health,
        state=WorkerState.ACTIVE,
        last_heartbeat_ms=NOW_MS - 2_000,
        started_at_ms=NOW_MS - 60_000,
        incarnation=1,
        heartbeat_interval_ms=5_000,
        lease_ms=15_000,
        metrics=WorkerMetrics(tasks_completed=7, tasks_failed=1, average_task_duration_ms=3.0),
    )


def waiting(name: str, why: str = "4 are ahead of it", *, is_stuck: bool = False) -> BacklogView:
    return BacklogView(
        queue="mail",
        name=name,
        requires=(),
        queued=3,
        scheduled=0,
        running=0,
        oldest_age_ms=61_000,
        why=WhyView(code="some", text=why, is_stuck=is_stuck),
    )


def queue(name: str, depth: int = 0) -> QueueView:
    return QueueView(name=name, paused=False, depth=depth, scheduled=0, running=0)


def seen(
    *,
    queues: list[QueueView] | None = None,
    workers: list[WorkerView] | None = None,
    backlog: list[BacklogView] | None = None,
    stuck: int = 0,
) -> TopView:
    overview = Overview(
        now_ms=NOW_MS,
        version="1.2.3",
        tasks={"queued": 1_203, "failed": 0, "succeeded": 9},
        runs={},
        workers={"healthy": 1},
        queues=len(queues or []),
        paused_queues=[],
        stuck=stuck,
        shards=ShardCounts(services=1, shards=10, owned=9, unowned=1, moving=2),
    )
    return TopView(
        overview=overview, queues=queues or [], workers=workers or [], backlog=backlog or []
    )


def picture(one: TopView, *, width: int = 110, height: int = 40, problem: str | None = None) -> str:
    console = Console(width=width, height=height, record=True, file=None, no_color=True)
    with console.capture() as captured:
        console.print(draw_top(one, width=width, height=height, problem=problem))
    return captured.get()


# --- what is told -------------------------------------------------------------------------------


def test_counts_of_nothing_are_left_out() -> None:
    assert summary(seen()) == [
        ("tasks", "1,203 queued, 9 succeeded"),
        ("workers", "1 healthy"),
        ("shards", "9 of 10 owned, 2 moving"),
    ]


def test_the_leader_is_named_where_coordinators_share_a_store() -> None:
    leader = LeaderView(
        name="a", address="http://a:7070", epoch=3, since_ms=NOW_MS - 60_000, is_here=False
    )
    view = seen()
    shared = replace(view, overview=replace(view.overview, leader=leader))

    assert summary(shared)[-1] == ("leader", "a for 1 min, epoch 3")


def test_workers_that_somebody_should_look_at_come_first_then_the_busiest() -> None:
    workers = [worker("idle"), worker("busy", busy=3), worker("late", Health.DEGRADED)]

    rows = worker_rows(seen(workers=workers))

    assert [row[0] for row in rows] == ["late", "busy", "idle"]
    assert rows[0][-1] == "2 s ago"


def test_what_is_stuck_says_so() -> None:
    rows = waiting_rows(seen(backlog=[waiting("a", is_stuck=True), waiting("b")]))

    assert [row[0] for row in rows] == ["stuck", ""]


@given(lengths=st.lists(st.integers(0, 1_000), min_size=1, max_size=5), room=st.integers(0, 300))
def test_tables_share_the_screen_and_waste_none_of_it(lengths: list[int], room: int) -> None:
    granted = shares(lengths, room)

    assert all(0 <= got <= length for got, length in zip(granted, lengths, strict=True))
    assert sum(granted) == min(room, sum(lengths))


# --- how it is drawn ----------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(140, 50), (110, 34), (80, 24), (60, 20), (40, 20)])
def test_a_busy_coordinator_fits_the_screen(width: int, height: int) -> None:
    busy = seen(
        queues=[queue(f"queue-{place}", place) for place in range(50)],
        workers=[worker(f"worker-{place}") for place in range(200)],
        backlog=[waiting(f"task-{place}", "no worker knows it" * 5) for place in range(30)],
        stuck=90,
    )

    lines = picture(busy, width=width, height=height).splitlines()

    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert [line for line in lines if re.search(r"\band [\d,]+ more", line)]
    assert "task-0" in "\n".join(lines)


def test_the_smallest_screen_shows_what_it_can() -> None:
    assert "rota 1.2.3" in picture(seen(backlog=[waiting("a")]), width=20, height=3)


def test_what_cannot_start_is_in_the_first_line() -> None:
    assert "3 tasks cannot start" in picture(seen(stuck=3)).splitlines()[0]
    assert "1 task cannot start" in picture(seen(stuck=1)).splitlines()[0]


def test_child_runs_name_the_workflow_of_their_parent() -> None:
    child = RunView(
        id="00000000000000a1",
        workflow="ask",
        version=1,
        state=RunState.RUNNING,
        created_at_ms=NOW_MS - 2_000,
        started_at_ms=NOW_MS - 2_000,
        parent_run_id="00000000000000a0",
        parent_workflow="outer",
    )
    wait = replace(asking("Ship order 17?"), parent_workflow="outer")

    lines = picture(replace(seen(), runs=[child], waits=[wait])).splitlines()

    assert "ask in outer" in next(line for line in lines if child.id in line)
    assert "order in outer" in next(line for line in lines if "Ship order 17?" in line)


def test_what_needs_an_answer_comes_first() -> None:
    view = seen(queues=[queue("mail", 3)], backlog=[waiting("a")])
    view = replace(
        view,
        overview=replace(view.overview, waits={"approval": 1, "signal": 2}),
        waits=[asking("Ship order 17?")],
    )

    lines = picture(view, width=80, height=24).splitlines()

    assert "needs you  1 approval, 2 signals" in "\n".join(lines)
    titles = [line for line in lines if "Ship order 17?" in line]
    assert "5 min ago" in titles[0]
    assert "in 1 h" in titles[0]
    assert lines.index(titles[0]) < next(at for at, line in enumerate(lines) if "mail" in line)


def asking(title: str) -> WaitView:
    return WaitView(
        kind="approval",
        run_id="0123456789abcdef",
        workflow="order",
        token_id="0123456789abcdef.1",
        name="ship",
        place="ship",
        title=title,
        since_ms=NOW_MS - 300_000,
        due_at_ms=NOW_MS + 3_700_000,
    )


def test_a_wide_screen_has_tables_beside_each_other() -> None:
    view = seen(queues=[queue("mail", 3)], workers=[worker("w1")], backlog=[waiting("task-0")])

    lines = picture(view, width=160, height=50).splitlines()

    (headings,) = [line for line in lines if "queue" in line and "why" in line]
    assert headings.index("why") < headings.rindex("queue")
    assert max(map(len, lines)) <= 160


def test_a_table_is_left_out_before_the_others_have_hardly_a_row() -> None:
    view = seen(
        queues=[queue(f"queue-{place}", place) for place in range(6)],
        workers=[worker(f"worker-{place}") for place in range(6)],
        backlog=[waiting(f"task-{place}") for place in range(6)],
    )

    text = picture(view, width=80, height=16)

    assert len(re.findall(r"task-\d", text)) >= 2
    assert len(re.findall(r"queue-\d", text)) >= 2
    assert "worker-" not in text


def test_a_coordinator_that_does_not_answer_is_told_beside_the_last_look() -> None:
    first = picture(seen(), problem="no answer: refused").splitlines()[0]

    assert first.startswith("rota 1.2.3")
    assert "no answer: refused" in first


def test_a_name_cannot_write_to_the_terminal() -> None:
    assert "\x1b" not in picture(seen(queues=[queue("a\x1b[2Jb")]))


# --- the command --------------------------------------------------------------------------------


def test_without_a_terminal_it_is_shown_once(rota: Command, client: Client) -> None:
    client.run(calls.register_worker(WorkerRegistration(node_id="here", worker_id="top-worker")))

    ended = rota("top")

    assert ended.exit_code == ExitCode.OK
    assert "top-worker" in ended.stdout


def test_programs_get_one_document(rota: Command, client: Client) -> None:
    client.run(calls.register_worker(WorkerRegistration(node_id="here", worker_id="top-worker")))

    shown = document(rota("top", "--json"))

    assert {"overview", "queues", "workers", "backlog", "waits", "runs", "activity"} == set(shown)
    assert "top-worker" in [one["id"] for one in shown["workers"]]


def test_a_coordinator_that_is_not_there_is_no_traceback(rota: Command, tmp_path: Path) -> None:
    with running("top", "--url", "http://127.0.0.1:9", folder=tmp_path) as process:
        assert process.ends() == ExitCode.UNUSABLE
        assert "Traceback" not in process.output


@pytest.mark.parametrize("pressed", ["q", "Q"])
def test_the_live_screen_ends_with_q(url: str, tmp_path: Path, pressed: str) -> None:
    mine, its = pty.openpty()
    command = [*COMMAND, "top", "--url", url]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(TERM="xterm"), stdin=its, stdout=its, stderr=its
    ) as process:
        os.close(its)
        shown = b""
        while b"rota" not in shown:
            shown += os.read(mine, 10_000)
        os.write(mine, b"x" + pressed.encode())
        with contextlib.suppress(OSError):  # the terminal is gone when the process is
            while os.read(mine, 10_000):
                pass

        assert process.wait(TIMEOUT_S) == ExitCode.OK
    os.close(mine)
