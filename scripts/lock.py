"""Write requirements.lock: every version of constraints.txt, with the hashes of its wheels.

pip is asked, for each Python and platform that the project is set up on, which wheel it would
install; its report names the hash that the index gives for it. Nothing is installed. A package
without a wheel for some platform is left out there, and named at the end.

    .venv/bin/python scripts/lock.py            # ask for versions that are new
    .venv/bin/python scripts/lock.py --all      # ask for all of them
    .venv/bin/python scripts/lock.py --check    # whether the lock fits the constraints
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
LOCK = ROOT / "requirements.lock"
HEAD = """\
# Written by scripts/lock.py from constraints.txt; `make setup` installs this and nothing else.
# The hashes are those of the wheels for the Pythons and platforms that the script lists.
"""
PYTHONS = ("3.11", "3.12", "3.13")
GLIBC_MINORS = (17, 24, 26, 27, 28, 31, 34, 35)
PLATFORMS = {
    "linux-x86_64": [f"manylinux_2_{minor}_x86_64" for minor in GLIBC_MINORS]
    + ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"],
    "linux-aarch64": [f"manylinux_2_{minor}_aarch64" for minor in GLIBC_MINORS]
    + ["manylinux2014_aarch64"],
    "macos-arm64": [f"macosx_{major}_0_arm64" for major in (11, 12, 13, 14, 15)]
    + ["macosx_11_0_universal2", "macosx_10_9_universal2"],
}
MISSING = re.compile(r"No matching distribution found for ([A-Za-z0-9_.-]+)")

Hashes = dict[str, set[str]]  # by pinned requirement


class Target(NamedTuple):
    python: str
    platform: str

    @property
    def name(self) -> str:
        return f"{self.python}-{self.platform}"


TARGETS = [Target(python, platform) for platform in PLATFORMS for python in PYTHONS]


def main() -> None:
    arguments = sys.argv[1:]
    pins = read_pins()
    if arguments == ["--check"]:
        check(pins)
        return
    if arguments not in ([], ["--all"]):
        sys.exit(__doc__)
    found: Hashes = defaultdict(set, {} if arguments or not LOCK.exists() else read_lock())
    new = [pin for pin in pins if not found[pin]]
    for target in TARGETS if new else ():
        hashes, missing = ask(target, new)
        for pin, values in hashes.items():
            found[pin] |= values
        print(f"{target.name}: {len(hashes)} wheels", *(f"no {one}" for one in missing), sep=", ")
    unlocked = [pin for pin in pins if not found[pin]]
    if unlocked:
        sys.exit(f"no wheel for any target: {' '.join(unlocked)}")
    LOCK.write_text(HEAD + "".join(entry(pin, found[pin]) for pin in pins), encoding="utf-8")


def read_pins() -> list[str]:
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def read_lock() -> Hashes:
    found: Hashes = defaultdict(set)
    pin = ""
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        text = line.strip(" \\")
        if text.startswith("--hash="):
            found[pin].add(text.removeprefix("--hash="))
        elif text and not text.startswith("#"):
            pin = text
    return found


def entry(pin: str, hashes: Iterable[str]) -> str:
    return " \\\n    ".join([pin, *(f"--hash={one}" for one in sorted(hashes))]) + "\n"


def check(pins: list[str]) -> None:
    """Fail when a version was changed and the lock was not written again."""
    locked = read_lock()
    if set(pins) != {pin for pin, hashes in locked.items() if hashes}:
        sys.exit("requirements.lock does not fit constraints.txt: run scripts/lock.py")


def ask(target: Target, pins: list[str]) -> tuple[Hashes, list[str]]:
    """The hashes of what pip would install for a target, and the packages without a wheel."""
    left, missing = list(pins), []
    while True:
        outcome, report = dry_run(target, left)
        if report is not None:
            return hashes_in(report, left), missing
        lacking = MISSING.search(outcome)
        name = normalized(lacking[1]) if lacking else ""
        kept = [pin for pin in left if normalized(name_of(pin)) != name]
        if len(kept) == len(left):
            sys.exit(f"{target.name}: {outcome}")
        missing.append(name)
        left = kept


def dry_run(target: Target, pins: list[str]) -> tuple[str, str | None]:
    """What pip says, and its report if it could find everything."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder, "wanted.txt"), Path(folder, "report.json")
        wanted.write_text("\n".join(pins), encoding="utf-8")
        options = ["--python-version", target.python, "--implementation", "cp"]
        for platform in PLATFORMS[target.platform]:
            options += ["--platform", platform]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet"),
                *("--ignore-installed", "--no-deps", "--only-binary", ":all:"),
                *("--target", folder, *options, "--report", report, "--requirement", wanted),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done.stderr, None
        return done.stderr, report.read_text(encoding="utf-8")


def hashes_in(report: str, pins: list[str]) -> Hashes:
    by_name = {normalized(name_of(pin)): pin for pin in pins}
    return {
        by_name[normalized(one["metadata"]["name"])]: {
            f"sha256:{one['download_info']['archive_info']['hashes']['sha256']}"
        }
        for one in json.loads(report)["install"]
    }


def name_of(pin: str) -> str:
    return pin.partition("==")[0]


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
