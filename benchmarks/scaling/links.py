"""The delayed link between the coordinators and PostgreSQL."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from benchmarks.peers.measuring import percentiles
from benchmarks.processes import Failed, running
from benchmarks.scaling import delaying

START_LIMIT_S = 15.0
POLL_S = 0.02
PROBES = 50


@contextmanager
def delayed_port(port: int, rtt_ms: float, log: Path) -> Iterator[int]:
    """Run a proxy that adds this round trip to every connection to the port; yield its port."""
    command = [sys.executable, "-m", "benchmarks.scaling.delaying", str(port), str(rtt_ms / 2)]
    with running(command, log=log) as process:
        end_s = time.monotonic() + START_LIMIT_S
        while not (said := log.read_text()).startswith(delaying.READY) or "\n" not in said:
            process.check()
            if time.monotonic() > end_s:
                raise Failed(f"the delaying proxy did not start within {START_LIMIT_S:.0f} s")
            time.sleep(POLL_S)
        yield int(said.removeprefix(delaying.READY))
        process.check()


@contextmanager
def delayed(store: str, rtt_ms: float, folder: Path) -> Iterator[str]:
    """The same store behind this round trip; without a proxy where it is zero."""
    if rtt_ms == 0:
        yield store
        return
    parts = urlsplit(store)
    assert parts.port is not None, "the benchmark's server has one"
    with delayed_port(parts.port, rtt_ms, folder / "delaying.log") as port:
        host = parts.netloc.rpartition(":")[0]
        yield parts._replace(netloc=f"{host}:{port}").geturl()


def round_trip_ms(store: str) -> float:
    """The median time of a query that does nothing, from this process."""
    with psycopg.connect(store, autocommit=True) as connection:
        taken_ms = []
        for _ in range(PROBES):
            start_s = time.perf_counter()
            connection.execute("SELECT 1")
            taken_ms.append((time.perf_counter() - start_s) * 1000)
    return float(percentiles(taken_ms)["p50_ms"])
