"""How do the peers do, in the same run on the same machine?

They are installed into an environment of their own, so that theirs and the project's never meet.
Each is a process that reports line by line; one that fails or takes too long leaves a reason
behind, keeps what it had measured, and disturbs no other.
"""

import json
import subprocess
import time
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import witness
from benchmarks.peers import measuring
from benchmarks.plan import Plan
from benchmarks.processes import ROOT, Failed, Process, last_line

ENVIRONMENT = ROOT / "benchmarks" / ".venv-peers"
INSTALL_LIMIT_S = 300.0
SLACK_S = 60.0  # beyond the limits of a peer's own steps, for starting and stopping

Facts = dict[str, Any]
Say = Callable[[str], None]


class Peer(NamedTuple):
    title: str
    module: str
    packages: tuple[str, ...]
    variant: str = ""
    needs_redis: bool = False


PEERS: dict[str, Peer] = {
    "huey": Peer("Huey", "huey_sqlite", ("huey",), "tuned"),
    "huey-default": Peer("Huey, default", "huey_sqlite", ("huey",), "default"),
    "huey-unsynced": Peer("Huey, no fsync", "huey_sqlite", ("huey",), "unsynced"),
    "dbos": Peer("DBOS", "dbos_sqlite", ("dbos",)),
    "celery": Peer("Celery", "celery_redis", ("celery[redis]", "hiredis"), needs_redis=True),
}


def install(peer: Peer, say: Say) -> str:
    """Make the environment and put the peer into it, once; the answer is its Python."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / f".installed-{peer.module}"
    if stamp.is_file() and stamp.read_text() == " ".join(peer.packages):
        return str(python)
    say(f"installing {', '.join(peer.packages)} into {ENVIRONMENT.relative_to(ROOT)}")
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, *peer.packages],
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"pip did not finish within {INSTALL_LIMIT_S:.0f} s") from error
    if done.returncode != 0:
        raise Failed(f"pip could not install it: {done.stderr.strip()[-300:]}")
    stamp.write_text(" ".join(peer.packages))
    return str(python)


def measure(
    peer: Peer, plan: Plan, folder: Path, *, python: str, environment: Mapping[str, str], say: Say
) -> Facts:
    """Run a peer's program to its end; what it reported, and the reason if that is not all."""
    folder.mkdir()
    log = folder / "peer.log"
    command = [
        *(python, "-m", "benchmarks.peers", peer.module),
        *("--tasks", str(plan.peer_tasks), "--samples", str(plan.samples)),
        *("--runs", str(plan.peer_runs), "--limit-s", str(plan.peer_limit_s)),
    ]
    process = Process(
        command,
        log=log,
        environment={
            **environment,
            witness.FOLDER_VARIABLE: str(folder),
            measuring.VARIANT_VARIABLE: peer.variant,
        },
    )
    end_s = time.monotonic() + measuring.most_s(plan.peer_limit_s) + SLACK_S
    told = 0
    try:
        while process.exit_code is None and time.monotonic() < end_s:
            time.sleep(0.2)
            told = _tell(log, told, say)
        exit_code = process.exit_code
    finally:
        process.stop()
    facts: Facts = {line.pop("what"): line for line in _reports(log)}
    facts |= facts.pop("peer", {})
    if exit_code != 0:
        reason = "took too long and was ended" if exit_code is None else last_line(log)
        facts["problem"] = reason
    return facts


def _tell(log: Path, told: int, say: Say) -> int:
    reports = _reports(log)
    for report in reports[told:]:
        if report["what"] != "peer":
            say(f"  {report['what']}: {summary(report)}")
    return len(reports)


def summary(facts: Facts) -> str:  # noqa: PLR0911 - a table
    if "per_s" in facts:
        what = "runs" if "runs" in facts else "tasks"
        return f"{facts['per_s']:,.0f}/s ({facts[what]:,} {what} in {facts['seconds']:.2f} s)"
    if "crowd_p99_ms" in facts:
        return f"p99 {facts['p99_ms']:.2f} ms, of crowds {facts['crowd_p99_ms']:.2f} ms"
    if "p50_ms" in facts:
        return f"p50 {facts['p50_ms']:.2f} ms, p99 {facts['p99_ms']:.2f} ms"
    if "depths" in facts:
        costs = (
            f"{entry['us_per_task']:.1f} µs at {int(depth):,}"
            for depth, entry in facts["depths"].items()
        )
        return f"{', '.join(costs)} (x{facts['ratio']:.2f})"
    if "beats_per_s" in facts:
        work_us = facts["cpu_us_per_beat"]
        work = "" if work_us is None else f", {work_us:.0f} µs of work each"
        return f"{facts['beats_per_s']:,.0f}/s ({facts['beats']:,} beats{work})"
    if "rebalances" in facts:
        return (
            f"{facts['members']:,} in {facts['seconds']:.2f} s with {facts['rebalances']} "
            f"rebalances; their restarts moved {facts['moved_by_restarts']}"
        )
    if "leave_s" in facts:
        return (
            f"after a leave {facts['leave_s']:.2f} s, after a death {facts['death_s']:.2f} s "
            f"(lease {facts['lease_s']:.0f} s)"
        )
    if "items" in facts:
        sizes = (f"{seconds:.2f} s for {int(items):,}" for items, seconds in facts["items"].items())
        return f"{', '.join(sizes)} (x{facts['over_linear']:.2f} of linear)"
    return str(facts)


def _reports(log: Path) -> list[Facts]:
    """The lines a peer has reported so far; what else it said is left to people."""
    return [
        json.loads(line)
        for line in log.read_text(errors="replace").splitlines()
        if line.startswith('{"what": ') and line.endswith("}")
    ]
