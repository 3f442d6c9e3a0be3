"""The peers, measured in the same run on the same machine.

Peers are installed into an environment of their own, so that their dependencies and the project's
never mix; peers for Node are installed into a folder of their own. Each peer is a process that
reports line by line. If it fails or takes too long, the reason and the figures so far are kept, and
the other peers are not affected.
"""

import json
import shutil
import subprocess
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import redis_server, witness
from benchmarks.peers import measuring
from benchmarks.plan import Plan
from benchmarks.processes import ROOT, Failed, LeftOut, Process, last_line
from benchmarks.summaries import summary

ENVIRONMENT = ROOT / "benchmarks" / ".venv-peers"
NODE_FOLDER = ROOT / "benchmarks" / ".node-peers"
INSTALL_LIMIT_S = 300.0
SLACK_S = 60.0  # beyond the limits of a peer's own steps, for starting and stopping

Facts = dict[str, Any]
Say = Callable[[str], None]


class Peer(NamedTuple):
    title: str
    module: str
    packages: tuple[str, ...]
    variant: str = ""
    redis: redis_server.Keeping | None = None  # the Redis that the peer needs
    needs_postgres: bool = False
    node_packages: tuple[str, ...] = ()
    most_tasks: int | None = None  # for a peer that would take minutes for all tasks


POSTGRES_PEERS: dict[str, Peer] = {
    "procrastinate": Peer(
        "Procrastinate",
        "procrastinate_postgres",
        ("procrastinate", "psycopg[binary]"),
        needs_postgres=True,
        most_tasks=10_000,
    ),
    "pgqueuer": Peer(
        "PgQueuer, default",
        "pgqueuer_postgres",
        ("pgqueuer", "asyncpg", "uvloop"),
        "default",
        needs_postgres=True,
    ),
    "pgqueuer-tuned": Peer(
        "PgQueuer, by 500",
        "pgqueuer_postgres",
        ("pgqueuer", "asyncpg", "uvloop"),
        "tuned",
        needs_postgres=True,
    ),
    "dbos-postgres": Peer(
        "DBOS",
        "dbos_postgres",
        ("dbos", "psycopg[binary]"),
        needs_postgres=True,
        most_tasks=5_000,
    ),
    "pg-boss": Peer(
        "pg-boss (Node)",
        "node_postgres",
        (),
        "pg_boss",
        needs_postgres=True,
        node_packages=("pg-boss@10",),
    ),
    "counting-sql": Peer(
        "SQL that counts",
        "counting_postgres",
        ("psycopg[binary]",),
        needs_postgres=True,
    ),
    "graphile-worker": Peer(
        "Graphile Worker (Node)",
        "node_postgres",
        (),
        "graphile_worker",
        needs_postgres=True,
        node_packages=("graphile-worker@0.17",),
    ),
}

PEERS: dict[str, Peer] = {
    "huey": Peer("Huey", "huey_sqlite", ("huey",), "tuned"),
    "huey-default": Peer("Huey, default", "huey_sqlite", ("huey",), "default"),
    "huey-unsynced": Peer("Huey, no fsync", "huey_sqlite", ("huey",), "unsynced"),
    "huey-redis": Peer(
        "Huey on Redis",
        "huey_redis",
        ("huey", "redis", "hiredis"),
        redis=redis_server.NOTHING,
    ),
    "huey-redis-synced": Peer(
        "Huey on Redis, synced",
        "huey_redis",
        ("huey", "redis", "hiredis"),
        redis=redis_server.EVERYTHING,
    ),
    "dbos": Peer("DBOS", "dbos_sqlite", ("dbos",)),
    "celery": Peer(
        "Celery", "celery_redis", ("celery[redis]", "hiredis"), redis=redis_server.NOTHING
    ),
    **POSTGRES_PEERS,
}


def install(peer: Peer, say: Say) -> str:
    """Install the peer once; return the path of the Python that measures it."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    if peer.packages:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _install_once(pip, peer.packages, ENVIRONMENT, say)
    if peer.node_packages:
        if shutil.which("node") is None or shutil.which("npm") is None:
            raise LeftOut("there is no Node with npm on this machine")
        NODE_FOLDER.mkdir(exist_ok=True)
        npm = ["npm", "install", f"--prefix={NODE_FOLDER}", "--no-audit", "--no-fund"]
        _install_once([*npm, "--ignore-scripts"], peer.node_packages, NODE_FOLDER, say)
    return str(python)


def _install_once(command: Sequence[str], packages: Sequence[str], place: Path, say: Say) -> None:
    stamp = place / f".installed-{'-'.join(packages).replace('/', '-')}"
    if stamp.is_file():
        return
    say(f"installing {', '.join(packages)} into {place.relative_to(ROOT)}")
    installer = Path(command[0]).name
    try:
        done = subprocess.run(
            [*command, *packages],
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{installer} did not finish within {INSTALL_LIMIT_S:.0f} s") from error
    if done.returncode != 0:
        raise Failed(f"{installer} could not install it: {done.stderr.strip()[-300:]}")
    stamp.touch()


def measure(
    peer: Peer, plan: Plan, folder: Path, *, python: str, environment: Mapping[str, str], say: Say
) -> Facts:
    """Run a peer's program to its end; return its reports, and the problem if it failed."""
    folder.mkdir()
    log = folder / "peer.log"
    command = [
        *(python, "-m", "benchmarks.peers", peer.module),
        *("--tasks", str(min(plan.peer_tasks, peer.most_tasks or plan.peer_tasks))),
        *("--samples", str(plan.samples)),
        *("--runs", str(plan.peer_runs), "--limit-s", str(plan.peer_limit_s)),
    ]
    process = Process(
        command,
        log=log,
        environment={
            **environment,
            witness.FOLDER_VARIABLE: str(folder),
            measuring.VARIANT_VARIABLE: peer.variant,
            measuring.NODE_VARIABLE: str(NODE_FOLDER),
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


def _reports(log: Path) -> list[Facts]:
    """The reports of a peer so far; other lines of its log are ignored."""
    return [
        json.loads(line)
        for line in log.read_text(errors="replace").splitlines()
        if line.startswith('{"what": ') and line.endswith("}")
    ]
