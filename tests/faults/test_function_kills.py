"""Workers that are killed while they run functions: what was committed is not done again."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rota import Rota, RunFailed
from rota.messages import RunRequest
from rota.sdk.client import function_calls, run_calls
from tests.cli.processes import Running, coordinator, running

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0

pytestmark = pytest.mark.slow


class Stage:
    """A coordinator, a worker that can be killed, and what its functions have done."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.app = Rota(url)
        self._url = url

    @contextmanager
    def worker(self) -> Iterator[Running]:
        # The next worker under this id takes the tasks of the one before it at once.
        arguments = ("--worker-id", "w", "--heartbeat-interval-ms", "500", "--json")
        variables = {
            "ROTA_URL": self._url,
            "PYTHONPATH": str(ROOT),
            "FAULTS_FOLDER": str(self.folder),
        }
        with running(
            "worker", "tests.faults.function_app:app", *arguments, folder=self.folder, **variables
        ) as process:
            process.wait_for('"worker_id"')
            yield process

    @property
    def effects(self) -> Counter[str]:
        record = self.folder / "effects"
        return Counter(record.read_text().splitlines() if record.exists() else [])

    def wait_for(self, effect: str) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while effect not in self.effects:
            assert time.monotonic() < give_up_at, f"{effect!r} was not reached: {self.effects}"
            time.sleep(0)

    def wait_until_pending(self, run_id: str) -> None:
        """Wait until the function has stopped and waits for a signal."""
        give_up_at = time.monotonic() + PATIENCE_S
        kinds: list[str] = []
        while "event" not in kinds:
            assert time.monotonic() < give_up_at, "the function does not wait"
            log, _ = self.app.client.run(function_calls.whole_log(run_id))
            kinds = [one.kind for one in log]

    def leave(self, place: str) -> None:
        (self.folder / f"leave {place}").touch()

    def start(self, workflow: str) -> Any:
        view = self.app.client.run(run_calls.start_run(RunRequest(workflow=workflow)))
        return self.app.run_handle(view.id)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with coordinator(tmp_path) as (_, url):
        staged = Stage(tmp_path, url)
        yield staged
        staged.app.close()


def test_a_worker_killed_in_a_step_runs_only_that_step_again(stage: Stage) -> None:
    with stage.worker() as first:
        handle = stage.start("steps")
        stage.wait_for("b")
        first.stop()  # by SIGKILL
    stage.leave("b")

    with stage.worker():
        assert handle.result(PATIENCE_S) == ["a", "b", "c"]

    assert stage.effects == {"a": 1, "b": 2, "c": 1}


def test_a_worker_killed_between_steps_runs_the_uncommitted_one_again(stage: Stage) -> None:
    with stage.worker() as first:
        handle = stage.start("between")
        stage.wait_for("between")
        first.stop()  # by SIGKILL
    stage.leave("between")

    with stage.worker():
        assert handle.result(PATIENCE_S) == ["a", "b", "c"]

    # The result of the second step is committed before the next effect, which did not come.
    assert stage.effects == {"a": 1, "b": 2, "between": 2, "c": 1}


def test_a_worker_killed_while_its_function_is_suspended_loses_nothing(stage: Stage) -> None:
    with stage.worker() as first:
        handle = stage.start("waiting")
        stage.wait_for("a")
        stage.wait_until_pending(handle.id)
        first.stop()  # by SIGKILL
    handle.signal("go", "signal")

    with stage.worker():
        assert handle.result(PATIENCE_S) == ["a", "signal", "c"]

    assert stage.effects == {"a": 1, "c": 1}


def test_a_worker_killed_beside_a_large_result_does_not_lose_it(stage: Stage) -> None:
    with stage.worker() as first:
        handle = stage.start("beside")
        stage.wait_for("b")
        first.stop()  # by SIGKILL
    stage.leave("b")

    with stage.worker():
        assert handle.result(PATIENCE_S) == [2_000_000, "a"]

    assert stage.effects == {"large": 1, "a": 1, "b": 2}


def test_a_worker_killed_in_an_undo_undoes_each_step_once_it_is_committed(stage: Stage) -> None:
    with stage.worker() as first:
        handle = stage.start("undoing")
        stage.wait_for("undo b")
        first.stop()  # by SIGKILL
    stage.leave("undo b")

    with stage.worker(), pytest.raises(RunFailed, match="out of stock"):
        handle.result(PATIENCE_S)

    assert stage.effects == {"a": 1, "b": 1, "undo b": 2, "undo a": 1}
