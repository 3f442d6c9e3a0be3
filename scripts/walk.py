"""Trace four paths through the real code, and print the files and functions on each.

    python scripts/walk.py [task] [join] [heartbeat] [dashboard] [--json]

A coordinator with its gateways, an app and a worker run in this process, each on a thread of its
own, over real sockets and a SQLite file. The paths:

- `task`: one task, from `enqueue()` in the caller's thread to the return of `handle.result()`.
- `join`: one join of a workflow run, from the end of its last branch to the start of the task after
  it.
- `heartbeat`: one heartbeat of a shard worker over ZeroMQ. It follows its own clock, so the idle
  time is the second half of the interval between two heartbeats.
- `dashboard`: the requests of the dashboard's first page.

**What counts.** A function under `src/rota` is on a path when it runs for that path once everything
is warm. Module and class bodies (what an import runs) do not count. Each path is walked once to
warm up and then `REPETITIONS` times while every thread is profiled, with a pause after each
repetition for what still follows from it, such as the acknowledgement of a result. Then nothing is
done for as long, and what runs meanwhile (duties, heartbeats of the worker) is counted the same
way. A function is on the path when it ran at least once more for every second repetition than it
did in the idle time. A file is on the path when one of its functions is. Files are in the order of
their first touch, by the median over the repetitions, because threads overlap.

`tests/test_walk.py` holds the length of the first path against a limit, and the path of one task in
ARCHITECTURE.md against this trace.
"""

import argparse
import asyncio
import inspect
import json
import logging
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import Any

import structlog

import rota
from rota import Rota, ShardWorker, Worker
from rota.node import Node
from rota.settings import Settings

SOURCE = Path(rota.__file__).parent
REPETITIONS = 20
SETTLE_S = 0.03  # after each repetition, for what still follows from it
PATIENCE_S = 60.0
SHARD_LEASE_MS = 600  # a heartbeat follows every third of it
PAGE = ("/", "/api/me", "/api/overview", "/api/series", "/api/backlog", "/api/queues")
JOIN = {
    "name": "walk",
    "initial_node": "start",
    "nodes": {"start": {"task": "greet"}, "branch": {"task": "hold"}, "after": {"task": "finish"}},
    "transitions": [
        {"id": "fan_out", "from": "start", "to": "branch", "spawn_count": 2},
        {
            "from": "branch",
            "to": "after",
            "synchronization": {"wait_for": "all", "joins_transition": "fan_out"},
        },
    ],
}

Place = tuple[str, str]  # file and function
Window = list[Place]  # what ran during one repetition, in order


@dataclass
class File:
    layer: str
    path: str
    functions: dict[str, int]  # calls in one repetition, in the order of their first touch


@dataclass
class Walk:
    title: str
    files: list[File] = field(default_factory=list)


# --- recording ----------------------------------------------------------------------------------


class Recorder:
    """Notes the calls of our own functions in every thread that starts after `install`."""

    def __init__(self) -> None:
        self._places: dict[CodeType, Place | None] = {}
        self._calls: Window | None = None
        self.times_s: list[float] = []  # of the calls in the newest window
        self.recorded_s = 0.0  # the length of all windows

    def install(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    @contextmanager
    def window(self) -> Iterator[Window]:
        calls: Window = []
        self.times_s = []
        began = time.monotonic()
        self._calls = calls
        try:
            yield calls
        finally:
            self._calls = None
            self.recorded_s += time.monotonic() - began

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        calls = self._calls
        if calls is None or event != "call":
            return
        code = frame.f_code
        if code not in self._places:
            self._places[code] = _place_of(code)
        place = self._places[code]
        if place is not None:
            self.times_s.append(time.monotonic())
            calls.append(place)


def _place_of(code: CodeType) -> Place | None:
    """The file and function of a code object; None for others' code and for import time."""
    path = Path(code.co_filename)
    if not path.is_relative_to(SOURCE) or not code.co_flags & inspect.CO_OPTIMIZED:
        return None
    return str(path.relative_to(SOURCE)), code.co_qualname.partition(".<locals>")[0]


def walk_of(title: str, windows: list[Window], idle: Window) -> Walk:
    """The walk that repetitions have in common, less what runs when nothing is done."""
    total = Counter(place for window in windows for place in window)
    total.subtract(Counter(idle))
    on_path = {place for place, count in total.items() if count * 2 >= len(windows)}
    firsts: dict[Place, list[int]] = {place: [] for place in on_path}
    for window in windows:
        seen = set()
        for index, place in enumerate(window):
            if place in on_path and place not in seen:
                seen.add(place)
                firsts[place].append(index)
    walk = Walk(title)
    files: dict[str, File] = {}
    for place in sorted(on_path, key=lambda place: (median(firsts[place]), place)):
        path, function = place
        if path not in files:
            layer = path.partition("/")[0] if "/" in path else "top level"
            files[path] = File(layer, path, {})
        files[path].functions[function] = max(1, round(total[place] / len(windows)))
    walk.files = list(files.values())
    return walk


# --- what is walked -----------------------------------------------------------------------------


class World:
    """A coordinator that serves on free ports, and an app that talks to it."""

    def __init__(self, folder: Path) -> None:
        self._settings = Settings(
            port=0,
            zmq_port=0,
            store=f"sqlite:///{folder / 'rota.db'}",
            shard_lease_ms=SHARD_LEASE_MS,
        )
        self._ready: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self.url = self._ready.result(PATIENCE_S)
        self.app = Rota(self.url)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self.node = Node(self._settings)
            await self.node.serve(self._ready.set_result)
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Run a worker for the app's tasks."""
        registered = threading.Event()
        worker = Worker(self.app, on_registered=lambda _: registered.set())
        thread = threading.Thread(target=lambda: asyncio.run(worker.arun()))
        thread.start()
        try:
            assert registered.wait(PATIENCE_S)
            yield
        finally:
            worker.stop()
            thread.join(PATIENCE_S)

    def close(self) -> None:
        self.app.close()
        self._loop.call_soon_threadsafe(self.node.ask_to_stop)
        self._thread.join(PATIENCE_S)


def _repeated(recorder: Recorder, title: str, once: Callable[[], Window]) -> Walk:
    """Walk to warm up, then `REPETITIONS` times, then be idle for as long."""
    for _ in range(3):
        once()
    before_s = recorder.recorded_s
    windows = [once() for _ in range(REPETITIONS)]
    length_s = recorder.recorded_s - before_s
    with recorder.window() as idle:
        time.sleep(length_s)
    return walk_of(title, windows, idle)


def walk_task(recorder: Recorder, world: World) -> Walk:
    @world.app.task
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    def once() -> Window:
        with recorder.window() as calls:
            greet.enqueue("world").result(timeout=PATIENCE_S)
            time.sleep(SETTLE_S)
        return calls

    with world.working():
        return _repeated(recorder, "one task, from enqueue() to its result", once)


def walk_join(recorder: Recorder, world: World) -> Walk:
    released, after = threading.Semaphore(0), threading.Semaphore(0)
    held = threading.Semaphore(0)

    @world.app.task(name="greet")
    async def start() -> None:
        return

    @world.app.task
    def hold() -> None:
        held.release()
        assert released.acquire(timeout=PATIENCE_S)

    @world.app.task
    def finish() -> None:
        after.release()

    workflow = world.app.workflow(json.dumps(JOIN, indent=1))

    def once() -> Window:
        run = workflow.start({})
        for _ in range(2):
            assert held.acquire(timeout=PATIENCE_S)
        released.release()
        time.sleep(SETTLE_S)  # the first branch has ended
        with recorder.window() as calls:
            released.release()
            assert after.acquire(timeout=PATIENCE_S)
        run.result(timeout=PATIENCE_S)
        time.sleep(SETTLE_S)
        return calls

    with world.working():
        title = "one join, from the end of its last branch to the start of the task after it"
        return _repeated(recorder, title, once)


def walk_heartbeat(recorder: Recorder, world: World) -> Walk:
    """Record for some time, and cut that into heartbeats and the rest between two of them."""
    interval_s = SHARD_LEASE_MS / 1_000 / 3
    assigned = threading.Semaphore(0)
    worker = ShardWorker(
        "walk",
        shards=4,
        on_assigned=lambda _: assigned.release(),
        url=world.url,
        zmq=world.node.shards_url,
    )
    with worker:
        for _ in range(4):
            assert assigned.acquire(timeout=PATIENCE_S)
        time.sleep(2 * interval_s)
        with recorder.window() as calls:
            time.sleep((REPETITIONS + 2) * interval_s)
        times_s = recorder.times_s
    windows: list[Window] = []
    idle: Window = []
    quiet_since = began = -interval_s
    for at, place in zip(times_s, calls, strict=True):
        if place[0].startswith("sdk/"):
            if at - quiet_since > interval_s / 2:
                windows.append([])  # the member speaks after a pause: its next heartbeat
                began = at
            quiet_since = at
        if windows:
            (windows[-1] if at - began < interval_s / 2 else idle).append(place)
    return walk_of("one heartbeat of a shard worker over ZeroMQ", windows, idle)


def walk_dashboard(recorder: Recorder, world: World) -> Walk:
    def once() -> Window:
        with recorder.window() as calls:
            for path in PAGE:
                with urllib.request.urlopen(world.url + path) as answer:
                    answer.read()
            time.sleep(SETTLE_S)
        return calls

    return _repeated(recorder, "the dashboard's first page", once)


WALKS: dict[str, Callable[[Recorder, World], Walk]] = {
    "task": walk_task,
    "join": walk_join,
    "heartbeat": walk_heartbeat,
    "dashboard": walk_dashboard,
}


def take(names: list[str]) -> dict[str, Walk]:
    """Take these walks, each in a world of its own."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    recorder = Recorder()
    recorder.install()
    walks = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            world = World(Path(folder))
            try:
                walks[name] = WALKS[name](recorder, world)
            finally:
                world.close()
    return walks


# --- printing -----------------------------------------------------------------------------------


def lines_of(walk: Walk) -> Iterator[str]:
    functions = sum(len(file.functions) for file in walk.files)
    calls = sum(sum(file.functions.values()) for file in walk.files)
    yield f"{walk.title}: {len(walk.files)} files, {functions} functions, {calls} calls"
    order = {file.path: place for place, file in enumerate(walk.files, start=1)}
    for layer in dict.fromkeys(file.layer for file in walk.files):
        own = [file for file in walk.files if file.layer == layer]
        yield f"\n  {layer}, {len(own)} files"
        for file in own:
            yield f"    {order[file.path]:3}  {file.path}"
            named = (f"{name} {n}x" if n > 1 else name for name, n in file.functions.items())
            yield f"           {', '.join(named)}"
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("walks", nargs="*", metavar="WALK", help=f"of {', '.join(WALKS)}; all")
    parser.add_argument("--json", action="store_true", help="for programs")
    options: Any = parser.parse_args()
    unknown = set(options.walks) - set(WALKS)
    if unknown:
        parser.error(f"there is no walk {', '.join(unknown)}; there are {', '.join(WALKS)}")
    walks = take(options.walks or list(WALKS))
    if options.json:
        print(json.dumps({name: asdict(walk) for name, walk in walks.items()}, indent=1))
    else:
        for walk in walks.values():
            print("\n".join(lines_of(walk)))


if __name__ == "__main__":
    main()
