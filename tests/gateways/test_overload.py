"""Under ten times as much as a coordinator takes at once, what it has accepted goes on.

`ROTA_OVERLOAD_SECONDS=10 pytest tests/gateways/test_overload.py -s` is the long form.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.processes import coordinator

ROOT = Path(__file__).parents[2]
OVERLOAD = 10  # connections that each submit as fast as they are answered, for each place
SECONDS = float(os.environ.get("ROTA_OVERLOAD_SECONDS", "2"))
MOST_GROWTH_KIB = 150 * 1024
# On two shared cores half of all refusals come within 9 and 30 ms; the rest is a margin for what
# else runs on the machine. Each of the connections asks again as soon as it is refused.
SIZES = {16: 30, 128: 150}  # milliseconds, by places, within which half of all refusals come


def peak_kib(pid: int) -> int:
    """The most memory that a process has ever had."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def flood(url: str, connections: int) -> dict[str, Any]:
    arguments = [str(httpx.URL(url).port), str(connections), str(SECONDS)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.gateways.flooding", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS + 120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="polls as Linux does")
@pytest.mark.parametrize("places", SIZES)
def test_ten_times_overload_loses_nothing_and_hurts_no_worker(tmp_path: Path, places: int) -> None:
    with coordinator(tmp_path, "--max-connections", str(places)) as (process, url):
        before_kib = peak_kib(process.pid)
        found = flood(url, OVERLOAD * places)
        growth_kib = peak_kib(process.pid) - before_kib

    print(json.dumps({**found, "growth_kib": growth_kib}))  # noqa: T201 - the figures of the run
    assert set(found["statuses"]) == {"201", "429"}
    assert found["unanswered"] == found["lost"] == 0
    assert set(found["worker_statuses"]) == {"200"}
    assert found["worker_unaccepted"] == found["evicted"] == 0
    assert found["refusal_p50_ms"] < SIZES[places]
    assert growth_kib < MOST_GROWTH_KIB
