"""The command line of the benchmarks: `python -m benchmarks --help`."""

import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

import rota
from benchmarks import bars, comparing, machine, postgres, table
from benchmarks.comparing import PEERS, POSTGRES_PEERS
from benchmarks.measurements import MEASUREMENTS
from benchmarks.plan import Plan, quick
from benchmarks.processes import ROOT, Failed, LeftOut, stop_all, time_limit
from benchmarks.servers import Servers
from benchmarks.summaries import summary

RESULTS = ROOT / "benchmarks" / "results"
LARGE_TASKS = 100_000
KNOWN = [*MEASUREMENTS, *postgres.MEASUREMENTS, *PEERS]
GROUPS = {
    "postgres": [*postgres.MEASUREMENTS, *POSTGRES_PEERS, "celery"],
    "scale-out": [*postgres.SCALING_MEASUREMENTS, "postgres-held"],
}

Results = dict[str, Any]


@click.command(context_settings={"max_content_width": 100})
@click.option("--quick", "is_quick", is_flag=True, help="Fewer tasks and samples, one turn each.")
@click.option("--only", help=f"Only these, by comma: {', '.join([*GROUPS, *KNOWN])}.")
@click.option("--no-peers", is_flag=True, help="Measure Rota alone.")
@click.option("--tasks", type=click.IntRange(min=100), help="How many tasks a drain has (20,000).")
@click.option("--large", is_flag=True, help=f"Also drain {LARGE_TASKS:,} tasks.")
@click.option("--json", "file", type=Path, help="Where the raw figures go.")
@click.option(
    "--install-redis", is_flag=True, help="Install Debian's redis-server if it is missing."
)
@click.option("--check", is_flag=True, help="Exit with 1 when a bar is missed.")
def main(
    *,
    is_quick: bool,
    only: str | None,
    no_peers: bool,
    tasks: int | None,
    large: bool,
    file: Path | None,
    install_redis: bool,
    check: bool,
) -> None:
    """Measure Rota on this machine, and its peers beside it, in one table."""
    plan = Plan(large_tasks=LARGE_TASKS if large else None)
    plan = quick(plan) if is_quick else plan
    if tasks is not None:
        plan = plan._replace(tasks=tasks, peer_tasks=tasks)
    selected = _selected(only, no_peers=no_peers, large=large)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    scratch = Path(tempfile.mkdtemp(prefix=".scratch-", dir=ROOT / "benchmarks"))
    try:
        results = _measure(plan, selected, scratch, install_redis=install_redis)
    finally:
        stop_all()
        shutil.rmtree(scratch, ignore_errors=True)
    verdicts = bars.judge(results)
    results["bars"] = [verdict._asdict() for verdict in verdicts]
    table.show(results, verdicts)
    _say(f"raw figures: {_write(results, file)}")
    missed = [verdict.row for verdict in verdicts if not verdict.is_met]
    if check and missed:
        _say(f"missed: {'; '.join(missed)}")
        sys.exit(1)


def _selected(only: str | None, *, no_peers: bool, large: bool) -> list[str]:
    if only is None:
        names = [name for name in KNOWN if large or name != "drain-large"]
    else:
        asked = [name.strip() for name in only.split(",")]
        names = list(dict.fromkeys(one for name in asked for one in GROUPS.get(name, [name])))
        if unknown := [name for name in names if name not in KNOWN]:
            there = ", ".join([*GROUPS, *KNOWN])
            raise click.BadParameter(f"{', '.join(unknown)}: there is {there}")
    return [name for name in names if not (no_peers and name in PEERS)]


def _measure(plan: Plan, selected: Sequence[str], scratch: Path, *, install_redis: bool) -> Results:
    results: Results = {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": rota.__version__,
        "plan": plan._asdict(),
        "machine": machine.describe(scratch),
        "rota": {},
        "peers": {},
    }
    with contextlib.ExitStack() as stack:
        servers = Servers(stack, scratch, install_redis=install_redis)
        for name in selected:
            if name not in PEERS:
                results["rota"][name] = _measure_rota(name, plan, scratch, servers)
        peers = [name for name in selected if name in PEERS]
        _measure_peers(peers, plan, scratch, results, servers)
    return results


def _measure_rota(name: str, plan: Plan, scratch: Path, servers: Servers) -> dict[str, Any]:
    measurement = MEASUREMENTS.get(name) or postgres.MEASUREMENTS[name]
    _say(f"rota, {name}: {(measurement.__doc__ or '').strip()}")
    pace_ms, start_s = machine.pace_ms(), time.monotonic()
    try:
        server = servers.postgres.get() if name in postgres.MEASUREMENTS else None
        is_long = name in postgres.SCALING_MEASUREMENTS
        with time_limit(plan.long_limit_s if is_long else plan.limit_s):
            if server is None:
                facts = MEASUREMENTS[name](plan, scratch)
            else:
                facts = postgres.MEASUREMENTS[name](plan, scratch, server)
    except LeftOut as error:
        facts = {"left_out": str(error)}
    except (Failed, OSError, rota.RotaError) as error:
        facts = {"problem": str(error)}
    said = facts.get("left_out") or facts.get("problem") or summary(facts)
    _say(f"  {said}  [{time.monotonic() - start_s:.0f} s]")
    return facts | {"pace_ms": pace_ms}


def _measure_peers(
    names: Sequence[str], plan: Plan, scratch: Path, results: Results, servers: Servers
) -> None:
    for name in names:
        peer = PEERS[name]
        _say(f"{peer.title}:")
        pace_ms = machine.pace_ms()
        try:
            python = comparing.install(peer, _say)
            with servers.environment(peer) as environment:
                facts = comparing.measure(
                    peer, plan, scratch / name, python=python, environment=environment, say=_say
                )
        except LeftOut as error:
            facts = {"left_out": str(error)}
        except (Failed, OSError) as error:
            facts = {"problem": str(error)}
        results["peers"][name] = facts | {"pace_ms": pace_ms}
        if reason := facts.get("left_out") or facts.get("problem"):
            _say(f"  {reason}")


def _write(results: Results, file: Path | None) -> Path:
    if file is None:
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"{results['started_at'].replace(':', '')}.json"
    file.write_text(json.dumps(results, indent=2) + "\n")
    return file


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
