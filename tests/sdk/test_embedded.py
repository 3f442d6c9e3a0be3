"""A program with no server: the coordinator and a worker are part of it."""

import asyncio
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest

from rota import Rota, TaskFailed, Unavailable
from rota.core import limits
from rota.core.tasks.model import TaskState
from rota.errors import StoreLocked
from rota.sdk.client import calls, client

PATIENCE_S = 30.0
EXAMPLES = Path(__file__).parents[2] / "examples"


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'rota.db'}"


def test_tasks_run_in_the_program_itself(tmp_path: Path) -> None:
    with Rota(url_in(tmp_path)) as app:

        @app.task(requires=["gpu"], queue="images")
        async def resize(path: str, width: int) -> str:
            return f"{path} at {width}"

        @app.task
        def where() -> str:
            return threading.current_thread().name

        assert resize.enqueue("a.png", width=200).result(PATIENCE_S) == "a.png at 200"
        assert where.enqueue().result(PATIENCE_S).startswith("rota-handler")


async def test_async_programs_work_the_same(tmp_path: Path) -> None:
    with Rota(url_in(tmp_path)) as app:

        @app.task
        async def double(number: int) -> int:
            return number * 2

        handles = await asyncio.gather(*(double.aenqueue(n) for n in range(10)))
        results = await asyncio.gather(*(handle.aresult(PATIENCE_S) for handle in handles))

        assert results == [n * 2 for n in range(10)]


def test_tasks_defined_after_the_first_call_run_too(tmp_path: Path) -> None:
    with Rota(url_in(tmp_path)) as app:

        @app.task
        async def early() -> str:
            return "early"

        assert early.enqueue().result(PATIENCE_S) == "early"

        @app.task
        async def late() -> str:
            return "late"

        assert late.enqueue().result(PATIENCE_S) == "late"


def test_what_was_left_is_done_when_the_program_is_back(tmp_path: Path) -> None:
    with Rota(url_in(tmp_path), concurrency=0) as before:

        @before.task(name="work")
        async def submitted() -> str:
            return "by the first program"

        task_id = submitted.enqueue().id
        assert before.handle(task_id).status() is TaskState.QUEUED

    with Rota(url_in(tmp_path)) as after:

        @after.task
        async def work() -> str:
            return "by the second program"

        after.start()
        assert after.handle(task_id).result(PATIENCE_S) == "by the second program"


def test_apps_of_one_program_share_a_file(tmp_path: Path) -> None:
    with Rota(url_in(tmp_path)) as first, Rota(url_in(tmp_path)) as second:

        @second.task
        async def work() -> str:
            return "done"

        second.start()
        assert first.enqueue("work").result(PATIENCE_S) == "done"


def test_a_file_that_another_coordinator_has_is_refused_with_the_reason(tmp_path: Path) -> None:
    script = (
        "import sys; from rota import Rota; app = Rota(sys.argv[1]); app.start();"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, url_in(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"

        with pytest.raises(StoreLocked):
            Rota(url_in(tmp_path)).start()
        other.communicate(timeout=PATIENCE_S)


def test_a_closed_app_opens_again_when_it_is_needed(tmp_path: Path) -> None:
    app = Rota(url_in(tmp_path))

    @app.task(max_attempts=1)
    async def work() -> None:
        raise ValueError("as always")

    for _ in range(2):
        with app, pytest.raises(TaskFailed, match="as always"):
            work.enqueue().result(PATIENCE_S)


def test_closing_wakes_whoever_waits(tmp_path: Path) -> None:
    app = Rota(url_in(tmp_path), concurrency=0)
    handle = app.enqueue("never")
    waiting = threading.Event()
    errors: list[BaseException] = []
    transport = app.client.transport

    def wait() -> None:
        waiting.set()
        try:
            transport.send(calls.get_task(handle.id, wait_ms=60_000))
        except Unavailable as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(PATIENCE_S)
    app.close()
    thread.join(PATIENCE_S)

    assert not thread.is_alive()


def environment() -> dict[str, str]:
    source = Path(__file__).parents[2] / "src"
    return {"PYTHONPATH": str(source), "PATH": "", "PYTHONWARNINGS": "error"}


@pytest.mark.slow
def test_the_quickstart_runs_as_it_is_and_ends_cleanly(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, EXAMPLES / "quickstart.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    assert finished.stdout == "Hello, world!\nHello, again! Hello, again! Hello, again!\n"
    assert finished.stderr == ""
    assert (tmp_path / "rota.db").exists()


@pytest.mark.slow
def test_a_program_that_does_not_wait_for_its_tasks_ends_and_keeps_them(tmp_path: Path) -> None:
    script = (
        "from rota import Rota\n"
        "app = Rota(embedded=True)\n"
        "@app.task\n"
        "def work(): ...\n"
        "work.using(delay_ms=3_600_000).enqueue()\n"
        "print('enqueued')\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    assert finished.stdout == "enqueued\n"
    assert finished.stderr == ""
    with Rota(url_in(tmp_path), concurrency=0) as app:
        assert len(app.client.run(calls.list_tasks(state="scheduled")).items) == 1


def test_a_program_without_a_file_can_start_a_large_workflow(tmp_path: Path) -> None:
    script = f"""
from rota import Rota

with Rota({url_in(tmp_path)!r}) as app:
    flow = app.workflow("large")
    texts = {{"text": "'x' + " * 20 + "'x'"}}
    nodes = [flow.node(f"n{{number}}", input=texts) for number in range(400)]
    for before, after in zip(nodes, nodes[1:]):
        flow.transition(before, after)
    assert len(flow.yaml()) > {limits.MAX_INLINE_DEFINITION_BYTES}
    flow.start({{}}).result(timeout={PATIENCE_S})
    print("through")
"""
    done = subprocess.run(
        [sys.executable, "-"],
        input=script,
        capture_output=True,
        check=False,
        text=True,
        timeout=2 * PATIENCE_S,
    )

    assert (done.stdout, done.returncode) == ("through\n", 0), done.stderr


def test_a_failed_task_has_the_handlers_traceback_as_its_cause(tmp_path: Path) -> None:
    app = Rota(url_in(tmp_path))

    @app.task(max_attempts=1)
    def charge() -> None:
        raise LookupError("no card")

    with app, pytest.raises(TaskFailed) as caught:
        charge.enqueue().result(PATIENCE_S)

    shown = "".join(traceback.format_exception(caught.value))
    assert 'raise LookupError("no card")' in str(caught.value.__cause__)
    assert shown.index("in charge") < shown.index("direct cause of the following exception")


def test_a_wait_that_times_out_says_why_the_task_waits(tmp_path: Path) -> None:
    with Rota(url_in(tmp_path), concurrency=0) as app:
        handle = app.enqueue("never")

        with pytest.raises(TimeoutError, match=r"still queued after 0 s: no worker is registered"):
            handle.result(timeout=0)


def test_without_an_address_an_app_asks_the_local_coordinator_and_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROTA_URL", raising=False)
    monkeypatch.setattr(client, "DEFAULT_URL", "http://127.0.0.1:1")

    with Rota() as app, pytest.raises(Unavailable) as refused:
        app.enqueue("work")

    assert "start one with `rota up` or `rota dev MODULE:APP`" in refused.value.detail
    assert "Rota(embedded=True)" in refused.value.detail
    assert list(tmp_path.iterdir()) == []


def test_an_address_in_the_environment_is_used_instead_of_an_embedded_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:1")

    with Rota(embedded=True) as app, pytest.raises(Unavailable) as refused:
        app.enqueue("work")

    assert "start one" not in refused.value.detail
    assert list(tmp_path.iterdir()) == []
