"""A description of the machine, without which the figures mean little."""

import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

SYNCS = 50
PACE_TURNS, PACE_ROUNDS = 7, 300_000
UNSTEADY = 1.3  # slowest pace over fastest; from here on, ratios are doubtful


def describe(folder: Path) -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "file_system": file_system(folder),
        "fsync_ms": _fsync_ms(folder),
    }


def in_words(facts: dict[str, Any]) -> str:
    return (
        f"{facts['cores']} cores ({facts['processor']}), {facts['system']}, Python "
        f"{facts['python']}, {facts['file_system']} with {facts['fsync_ms']:.2f} ms a sync, "
        f"load {facts['load_average']:.1f} at the start"
    )


def pace_ms() -> float:
    """The time for a fixed piece of work; it is longer while other programs use the machine."""
    return statistics.median(_round_ms() for _ in range(PACE_TURNS))


def _round_ms() -> float:
    start_s = time.perf_counter()
    total = 0
    for number in range(PACE_ROUNDS):
        total += number & 7
    return (time.perf_counter() - start_s) * 1000


def unsteadiness(measured: dict[str, dict[str, Any]]) -> str | None:
    """A warning for the reader if the load of the machine differed between systems."""
    paces = {name: facts["pace_ms"] for name, facts in measured.items() if "pace_ms" in facts}
    if not paces or max(paces.values()) < UNSTEADY * min(paces.values()):
        return None
    slowest, fastest = max(paces, key=paces.__getitem__), min(paces, key=paces.__getitem__)
    times = paces[slowest] / paces[fastest]
    return (
        f"something else was running: the same work took {times:.1f} times as long before "
        f"{slowest} as before {fastest}. Ratios of this run are doubtful."
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def file_system(folder: Path) -> str:
    """The kind of file system that holds the stores; on tmpfs nothing is durable."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "an unknown file system"
    path = str(folder.resolve())
    fitting = [
        (len(place), kind)
        for place, kind in mounts
        if path == place or path.startswith(place.rstrip("/") + "/")
    ]
    return max(fitting)[1] if fitting else "an unknown file system"


def _fsync_ms(folder: Path) -> float:
    """The time to sync one page to the disk: no durable answer can be quicker."""
    taken_ms = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(4_096))
            start_s = time.perf_counter()
            os.fsync(file.fileno())
            taken_ms.append((time.perf_counter() - start_s) * 1000)
    return statistics.median(taken_ms)
