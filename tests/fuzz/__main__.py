"""`make fuzz`: a minute of half-valid input on each transport; ends with 1 if it finds anything."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.campaign import FUZZERS, Campaign, abandon, still_open
from tests.fuzz.target import MEBIBYTE, Target


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each transport")
    parser.add_argument("--only", choices=tuple(FUZZERS), action="append")
    parser.add_argument("--first", type=int, default=0, help="index of the first shot")
    parser.add_argument("--shots", type=int, help="so many, however long they take")
    parser.add_argument("--store", help="another than a new SQLite file; it is filled with junk")
    asked = parser.parse_args()
    transports = asked.only or tuple(FUZZERS)
    say(f"seed {asked.seed}")
    with tempfile.TemporaryDirectory() as folder, Target(Path(folder), asked.store) as target:
        campaign = Campaign(target, asked.seed)
        # Opened first, so that most of their time is over when the last shot has been fired.
        abandoned = [] if asked.shots else abandon(target, transports)
        for transport in transports:
            fired = campaign.run(
                transport, seconds=asked.seconds, shots=asked.shots, first=asked.first
            )
            growth = target.growth_bytes() / MEBIBYTE
            say(f"{transport}: {fired} shots, the coordinator has grown by {growth:.0f} MiB")
        findings = [f"{what}\n  {where}" for what, where in campaign.findings.items()]
        findings += still_open(abandoned)
    for finding in findings:
        say(f"\nFOUND {finding}")
    say(f"\n{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
