"""The processor time of one call in two checkouts: `python -m benchmarks.path_costs --help`.

Rates and latencies of a machine that also does other work differ by ten per cent from turn to turn.
The processor time that a coordinator spends on a call differs much less. Here the coordinators of
both checkouts run all the time, and one client of this checkout calls them in many short turns,
each of which begins with the other one. Both use the `.venv` of this checkout, so that the code is
compared and not its dependencies; the other checkout needs no set-up. The processor time of a
coordinator is read from its clock with the precision of the kernel. The busy poll after an answer
is switched off, since polling is not work. The stores are on a file system in memory where there is
one, so that waiting for a disk costs nothing.

Rows:

- `submit`: a submission of one task, which no worker waits for.
- `pickup`: a submission of one task, and its lease to a streaming worker that waits for work. What
  the worker reports later is not counted.
- `poll`: the same with a worker whose lease call waits over HTTP. The call is counted.
- `report`: the result of one task, over the stream.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
from websockets.sync.client import ClientConnection, connect

from benchmarks.coordinators import Coordinator, connect_when_ready
from benchmarks.processes import ROOT, Failed, free_port, running, time_limit
from benchmarks.processor import clock_of
from benchmarks.wire import Connection, request
from rota.messages import streams
from rota.messages.sessions import MSGPACK

# Runs in either checkout, so it uses only what both have.
PROGRAM = """
from rota.gateways.http.server import scheduling
from rota.cli.main import main

scheduling.IS_WORTH_IT = False
main()
"""
SIDES = ("before", "now")
ROOM = 1_000
WORKED_ON = "worked-on"  # the queue that workers take tasks from
TURN_LIMIT_S = 120.0
MEMORY = Path("/dev/shm")  # a file system in memory
BEAT_INTERVAL_MS = 300_000  # no heartbeats: they would be counted


class Side:
    """The coordinator of one checkout, with a caller and a streaming worker."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._caller = coordinator.connection
        self._clock = clock_of(coordinator.process.id)
        self._socket: ClientConnection | None = None
        self._taken = 0
        self._number = 1

    def submit(self, size: int) -> float:
        one = _submission("kept")
        return self._cost_us(lambda: [self._caller.send(one) for _ in range(size)], size)

    def pickup(self, size: int) -> float:
        self._open_stream()
        one = _submission(WORKED_ON)
        leases: list[Any] = []

        def pick_up() -> None:
            for _ in range(size):
                self._caller.send(one)
                leases.extend(self._hear(streams.LEASES)["leases"])

        cost_us = self._cost_us(pick_up, size)
        self._report(leases)
        return cost_us

    def report(self, size: int) -> float:
        self._open_stream()
        leases: list[Any] = []
        for _ in range(size):
            self._caller.send(_submission(WORKED_ON))
            leases.extend(self._hear(streams.LEASES)["leases"])
        return self._cost_us(lambda: [self._report([one]) for one in leases], size)

    def poll(self, size: int) -> float:
        self._close_stream()
        worker = Connection(self._coordinator.port)
        registration = self._registration("poller")
        registered = worker.ask("POST", "/api/workers", registration)
        body = json.dumps({"incarnation": registered["incarnation"], "max": 1, "wait_ms": 20_000})
        ask = request("POST", "/api/workers/poller/lease", body.encode())
        one = _submission(WORKED_ON)
        leases: list[Any] = []

        def pick_up() -> None:
            for _ in range(size):
                worker.write(ask)
                self._settle()
                self._caller.send(one)
                leases.extend(json.loads(worker.read().body)["leases"])

        cost_us = self._cost_us(pick_up, size)
        results = [{"task_id": one["task_id"], "fence": one["fence"], "ok": True} for one in leases]
        answer = {"incarnation": registered["incarnation"], "results": results}
        worker.ask("POST", "/api/workers/poller/results", answer)
        worker.exchange(request("DELETE", "/api/workers/poller"))
        worker.close()
        return cost_us

    def _settle(self) -> None:
        """Let the coordinator take the lease call before the task comes."""
        time.sleep(0.001)

    def _cost_us(self, call: Callable[[], object], size: int) -> float:
        before_s = time.clock_gettime(self._clock)
        call()
        return (time.clock_gettime(self._clock) - before_s) / size * 1e6

    # --- the streaming worker -------------------------------------------------------------------

    @staticmethod
    def _registration(worker_id: str) -> dict[str, Any]:
        return {
            "worker_id": worker_id,
            "node_id": "benchmark",
            "queues": [WORKED_ON],
            "max_concurrent_tasks": ROOM,
            "heartbeat_interval_ms": BEAT_INTERVAL_MS,
        }

    def _open_stream(self) -> None:
        if self._socket is not None:
            return
        url = self._coordinator.url.replace("http", "ws") + "/ws"
        self._socket = connect(url, subprotocols=[MSGPACK], compression=None, legacy=True)
        self._taken = 0
        self._say(streams.OPEN, self._registration("streamer"))
        self._hear(f"{streams.OPEN}Response")
        self._say(streams.CREDIT, {"free": ROOM, "taken": 0})
        time.sleep(0.05)

    def _close_stream(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._caller.exchange(request("DELETE", "/api/workers/streamer"))

    def _report(self, leases: Sequence[Sequence[Any]]) -> None:
        self._taken += len(leases)
        results = [(task_id, fence) for task_id, fence, *_ in leases]
        self._say(streams.RESULTS, {"results": results, "free": ROOM, "taken": self._taken})
        answer = self._hear(f"{streams.RESULTS}Response")
        if answer.get("count") != len(leases) or answer.get("refused"):
            raise Failed(f"results were refused: {answer}")

    def _say(self, kind: str, payload: Any) -> None:
        assert self._socket is not None
        self._number += 1
        message = {"to": streams.MAIN, "type": kind, "id": self._number, "payload": payload}
        self._socket.send(msgspec.msgpack.encode(message))

    def _hear(self, kind: str) -> Any:
        assert self._socket is not None
        while True:
            heard = msgspec.msgpack.decode(self._socket.recv())
            if heard["type"] == kind:
                return heard["payload"]


ROWS: Mapping[str, tuple[int, Callable[[Side, int], float]]] = {
    "submit": (300, Side.submit),
    "pickup": (300, Side.pickup),
    "poll": (100, Side.poll),
    "report": (200, Side.report),
}


def _submission(queue: str) -> bytes:
    return request("POST", "/api/tasks", json.dumps({"name": "noop", "queue": queue}).encode())


@contextmanager
def _sides(checkouts: Mapping[str, Path]) -> Iterator[dict[str, Side]]:
    place = MEMORY if MEMORY.is_dir() else ROOT / "benchmarks"
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-paths-", dir=place))
        sides: dict[str, Side] = {}
        for name, checkout in checkouts.items():
            folder, port = Path(scratch) / name, free_port()
            folder.mkdir()
            command = [sys.executable, "-c", PROGRAM, "up"]
            command += ["--store", f"sqlite:///{folder / 'rota.db'}", "--port", str(port)]
            log = folder / "coordinator.log"
            process = stack.enter_context(
                running(command, log=log, environment={"PYTHONPATH": str(checkout / "src")})
            )
            connection = connect_when_ready(process, port)
            stack.callback(connection.close)
            sides[name] = Side(Coordinator(process, folder, port, connection))
        yield sides


def _report_row(name: str, size: int, costs: Mapping[str, Sequence[float]]) -> None:
    print(f"{name}: {len(costs[SIDES[0]])} turns of {size}, processor time in µs a call")
    for side in SIDES:
        ordered = sorted(costs[side])
        low, high = ordered[len(ordered) // 4], ordered[len(ordered) * 3 // 4]
        print(
            f"  {side:7}{statistics.median(ordered):7.1f} "
            f"(half of the turns: {low:.1f} to {high:.1f}, least {ordered[0]:.1f})"
        )
    ratios = [now / before for before, now in zip(costs["before"], costs["now"], strict=True)]
    least = min(costs["now"]) / min(costs["before"])
    print(
        f"  now : before {statistics.median(ratios):.3f} is the median of the turns,"
        f" {least:.3f} by the least",
        flush=True,
    )


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--before",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    help="The other checkout.",
)
@click.option("--rows", default=",".join(ROWS), show_default=True, help="By comma.")
@click.option("--turns", type=click.IntRange(2, 1_000), default=20, show_default=True)
def main(*, before: Path, rows: str, turns: int) -> None:
    """Measure what calls cost the coordinators of --before and of this checkout, in turns."""
    if unknown := [name for name in rows.split(",") if name not in ROWS]:
        raise click.BadParameter(f"{', '.join(unknown)}: there is {', '.join(ROWS)}")
    with _sides({"before": before.resolve(), "now": ROOT}) as sides:
        for name in rows.split(","):
            size, measure = ROWS[name]
            costs: dict[str, list[float]] = {side: [] for side in SIDES}
            for turn in range(turns + 1):
                for side in SIDES if turn % 2 == 0 else reversed(SIDES):
                    with time_limit(TURN_LIMIT_S):
                        costs[side].append(measure(sides[side], size))
            _report_row(name, size, {side: found[1:] for side, found in costs.items()})


if __name__ == "__main__":
    sys.exit(main())
