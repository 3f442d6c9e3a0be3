"""Shard workers as processes: stopped by signals, killed, put to sleep and woken."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sdk.serving import PATIENCE_S
from tests.sdk.sharing import SERVICE, Diary, ShardServer, keeper

pytestmark = pytest.mark.slow  # each starts an interpreter

WIRES = pytest.mark.parametrize("wire", ["http", "zeromq"])
LEASE_MS = 1_500

# Says what happens to its shards; and, when it gets a line, whether it still holds one.
PROGRAM = """
import sys
import threading
import structlog
from rota import ShardWorker

# The log would write a line and its end apart, and what another thread says could come between.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
held = {}

def say(*words):
    # In one piece, for two threads speak.
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

def take_up(shard):
    held[shard.shard] = shard
    say("assigned", shard.shard)

def answer():
    for line in sys.stdin:
        say("held", held[int(line)].is_held)

threading.Thread(target=answer, daemon=True).start()
worker = ShardWorker(
    sys.argv[1],
    shards=1,
    worker_id="process",
    url=sys.argv[2],
    zmq=sys.argv[3],
    on_assigned=take_up,
    on_revoked=lambda shard: say("revoked", shard.shard),
    on_lost=lambda shard: say("lost", shard.shard),
)
say(worker.run())
"""


class Process:
    """A worker process that holds the only shard."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def next_line(self) -> str:
        """What it says next; nothing once it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ShardServer]:
    with ShardServer(tmp_path, shard_lease_ms=LEASE_MS) as running:
        yield running


@contextmanager
def worker_process(server: ShardServer, wire: str) -> Iterator[Process]:
    options = server.options(wire)
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, SERVICE, options["url"], options["zmq"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            running = Process(process)
            assert running.next_line() == "assigned 0"
            yield running
        finally:
            process.kill()


@WIRES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_gives_everything_up_and_ends(
    server: ShardServer, wire: str, number: signal.Signals
) -> None:
    with worker_process(server, wire) as worker:
        worker.process.send_signal(number)

        assert worker.next_line() == "revoked 0"
        assert worker.next_line() == "stopped"
        assert worker.process.wait(PATIENCE_S) == 0


@WIRES
def test_a_killed_worker_s_shards_move_on_after_its_lease(server: ShardServer, wire: str) -> None:
    diary = Diary()
    with (
        worker_process(server, wire) as worker,
        keeper(diary, "heir", shards=1, **server.options(wire)),
    ):
        worker.process.kill()

        diary.wait_for("heir assigned 0")
        assert diary.held["heir assigned 0"].epoch == 2


@WIRES
def test_a_worker_that_was_asleep_finds_its_lease_over_before_it_does_anything(
    server: ShardServer, wire: str
) -> None:
    diary = Diary()
    with (
        worker_process(server, wire) as worker,
        keeper(diary, "heir", shards=1, **server.options(wire)),
    ):
        worker.ask("0")
        assert worker.next_line() == "held True"
        worker.process.send_signal(signal.SIGSTOP)
        diary.wait_for("heir assigned 0")
        worker.ask("0")
        worker.process.send_signal(signal.SIGCONT)

        assert {worker.next_line(), worker.next_line()} == {"held False", "lost 0"}
        assert diary.held["heir assigned 0"].is_held


def test_a_worker_over_http_does_not_load_zeromq() -> None:
    program = (
        "import sys, rota; rota.ShardWorker('feed', shards=1, on_assigned=print); "
        "sys.exit('zmq' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
