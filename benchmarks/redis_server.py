"""A Redis server for the peers that need one: on a free port, removed afterwards.

By default it keeps nothing on disk. That is Redis at its fastest, and far less durable than Rota,
so such a ratio favours the peer. A Redis that syncs keeps what it has accepted, as Rota does.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.processes import Failed, free_port, running

START_LIMIT_S = 10.0
INSTALL_LIMIT_S = 300.0


class Keeping(NamedTuple):
    """The persistence settings of a Redis, with their description."""

    name: str
    settings: tuple[str, ...]
    text: str


NOTHING = Keeping(
    "redis",
    ("--save", "", "--appendonly", "no"),
    "save off, appendonly no: nothing on disk",
)
EVERYTHING = Keeping(
    "redis-synced",
    ("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
    "appendonly yes, appendfsync always: what is acknowledged is on disk",
)


def find() -> str | None:
    return shutil.which("redis-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")


def install() -> None:
    """Install Debian's package; only as root, and only if a flag asks for it."""
    if find() is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Failed("--install-redis needs root and apt-get; install redis-server by hand instead")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "redis-server"]):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_LIMIT_S,
            env=environment,
        )
        if done.returncode != 0 and "install" in command:
            raise Failed(f"apt-get could not install redis-server: {done.stderr.strip()[-300:]}")


@contextmanager
def redis(binary: str, folder: Path, keeping: Keeping) -> Iterator[tuple[str, str]]:
    """Run a server; yield its URL, and its version and settings in words."""
    folder.mkdir()
    port = free_port()
    place = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command = [binary, *place, *keeping.settings]
    with running(command, log=folder / "redis.log") as process:
        end_s = time.monotonic() + START_LIMIT_S
        while not _answers(port):
            process.check()
            if time.monotonic() > end_s:
                raise Failed(f"redis-server did not answer within {START_LIMIT_S:.0f} s")
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0", f"Redis {_version(binary)}, {keeping.text}"


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _version(binary: str) -> str:
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return next((word[2:] for word in said.split() if word.startswith("v=")), "of unknown version")
