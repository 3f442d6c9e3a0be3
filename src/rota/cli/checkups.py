"""What does `rota doctor` look at? One function a check, each giving what it found and advice."""

import fcntl
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec
from msgspec import Struct

from rota.errors import RotaError
from rota.messages import HealthAnswer
from rota.sdk import calls
from rota.sdk.client import Client
from rota.settings import Settings
from rota.store import migrate
from rota.store.opening import file_of, is_postgres
from rota.store.sqlite import MEMORY, path_of

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 51, 3)  # before it, a reset of the write-ahead log could lose commits
SYNCS = 20
SLOW_SYNC_MS = 10.0
CLOCK_WARN_MS = 1_000
CLOCK_FAIL_MS = 60_000
ANSWER_TIMEOUT_S = 5.0


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Checkup(Struct):
    check: str
    state: Verdict
    found: str
    advice: str = ""


class Heard(NamedTuple):
    """A coordinator's answer, and how far its clock was from ours (ahead is positive)."""

    health: HealthAnswer
    clock_ms: int
    uncertain_ms: int


def python() -> Checkup:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Checkup("python", Verdict.FAIL, found, "install Python 3.11 or newer")
    return Checkup("python", Verdict.OK, found)


def sqlite() -> Checkup:
    found = f"SQLite {apsw.sqlite_lib_version()} by apsw {apsw.apsw_version()}"
    if tuple(map(int, apsw.sqlite_lib_version().split("."))) < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        return Checkup("sqlite", Verdict.FAIL, found, f"install an apsw with SQLite {wanted}")
    return Checkup("sqlite", Verdict.OK, found)


def store(settings: Settings) -> Checkup:
    """Look at the store without changing it: who has it, and which shape is it in?"""
    return _postgres(settings) if is_postgres(settings.store) else _file(path_of(settings.store))


def _file(path: str) -> Checkup:
    if path == MEMORY:
        advice = "everything is lost when the coordinator ends; give a file with --store"
        return Checkup("store", Verdict.WARN, "kept in memory only", advice)
    if not Path(path).exists():
        return Checkup("store", Verdict.OK, f"{path} is not there yet; rota up makes it")
    try:
        version = _schema_version(path)
        holder = _holder(path)
    except (apsw.Error, OSError) as error:
        advice = "see that the file is readable, and is a database of Rota's"
        return Checkup("store", Verdict.FAIL, f"{path} cannot be read: {error}", advice)

    known = migrate.newest_version()
    used = f", in use by process {holder}" if holder else ""
    found = f"{path}: schema version {version} of {known}{used}"
    if version > known:
        return Checkup("store", Verdict.FAIL, found, "upgrade this Rota: the file is newer")
    if version < known:
        return Checkup("store", Verdict.WARN, found, "rota up or rota migrate brings it up to date")
    return Checkup("store", Verdict.OK, found)


def _postgres(settings: Settings) -> Checkup:
    try:
        # An extra: whoever has no store there need not have it.
        from rota.store.postgres.looking import look  # noqa: PLC0415

        seen = look(settings.store, settings.postgres_schema)
    except ImportError:
        return Checkup("store", Verdict.FAIL, "psycopg is missing", "pip install 'rota[postgres]'")
    except RotaError as error:
        advice = "see that the server runs, and that user, password and database are right"
        return Checkup("store", Verdict.FAIL, error.detail, advice)
    shape = f"schema version {seen.version} of {seen.known}"
    found = f"{seen.address.shown}: PostgreSQL {seen.server}, {shape}"
    if seen.problem is not None:
        return Checkup("store", Verdict.FAIL, found, seen.problem)
    if seen.version < seen.known:
        return Checkup("store", Verdict.WARN, found, "rota up or rota migrate brings it up to date")
    return Checkup("store", Verdict.OK, found)


def _schema_version(path: str) -> int:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return migrate.version(connection)
    finally:
        connection.close()


def _holder(path: str) -> str | None:
    """Tell which process has the store open; the lock file names it."""
    try:
        descriptor = os.open(f"{path}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 100).decode(errors="replace").strip() or "unknown"
    else:
        return None
    finally:
        os.close(descriptor)


def disk(settings: Settings) -> Checkup:
    """Measure what every commit waits for: the disk saying that something is written."""
    path = file_of(settings.store)
    folder = Path(tempfile.gettempdir()) if path is None else Path(path).absolute().parent
    try:
        typical_ms = _sync_ms(folder)
    except OSError as error:
        advice = f"make {folder} writable, or choose another --store"
        return Checkup("disk", Verdict.FAIL, f"cannot write: {error.strerror}", advice)
    found = f"fsync takes {typical_ms:.2f} ms in {folder}"
    if typical_ms > SLOW_SYNC_MS:
        advice = "each commit waits this long; batches still go fast, or choose a faster disk"
        return Checkup("disk", Verdict.WARN, found, advice)
    return Checkup("disk", Verdict.OK, found)


def _sync_ms(folder: Path) -> float:
    times_ms = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            times_ms.append((time.perf_counter() - started) * 1000)
    return statistics.median(times_ms)


def ask_health(client: Client) -> Heard | RotaError:
    call = msgspec.structs.replace(calls.health(), timeout_s=ANSWER_TIMEOUT_S)
    sent_ms = time.time() * 1000
    try:
        health = client.without_repeats().run(call)
    except RotaError as error:
        return error
    took_ms = time.time() * 1000 - sent_ms
    return Heard(health, int(health.timestamp - sent_ms - took_ms / 2), int(took_ms / 2))


def coordinator(answer: Heard | RotaError, address: str, *, is_named: bool) -> Checkup:
    if isinstance(answer, RotaError):
        verdict = Verdict.FAIL if is_named else Verdict.WARN
        return Checkup("coordinator", verdict, answer.detail, "start one with: rota up")
    health = answer.health
    if health.status != "healthy":
        ill = [check for check in health.checks if not check.isHealthy]
        reasons = ", ".join(f"{check.component}: {check.detail or 'unhealthy'}" for check in ill)
        return Checkup("coordinator", Verdict.FAIL, reasons, "read the coordinator's log")
    found = f"{address} is healthy, version {health.version}"
    if health.warnings:
        return Checkup("coordinator", Verdict.WARN, found, "; ".join(health.warnings))
    return Checkup("coordinator", Verdict.OK, found)


def replicas(client: Client) -> Checkup | None:
    """Who else works on the coordinator's store; None: nobody can, or we may not ask."""
    try:
        known = client.run(msgspec.structs.replace(calls.system(), timeout_s=ANSWER_TIMEOUT_S))
    except RotaError:
        return None
    if len(known.replicas) == 1:
        return None
    here = [one for one in known.replicas if not one.is_away]
    away = [one.name for one in known.replicas if one.is_away]
    versions = sorted({one.version for one in here})
    found = f"{len(here)} on one store, version {', '.join(versions)}"
    if away:
        advice = "start them again, or leave them: an hour after their end they are forgotten"
        return Checkup("replicas", Verdict.WARN, f"{found}; away: {', '.join(away)}", advice)
    if len(versions) > 1:
        return Checkup("replicas", Verdict.WARN, found, "bring all of them to one version")
    return Checkup("replicas", Verdict.OK, found)


def clock(heard: Heard) -> Checkup:
    apart_ms = abs(heard.clock_ms)
    found = f"{apart_ms} ms from the coordinator's (+-{heard.uncertain_ms} ms)"
    advice = "set both clocks by NTP; run_at_ms and expiry times are read by the coordinator's"
    if apart_ms - heard.uncertain_ms > CLOCK_FAIL_MS:
        return Checkup("clock", Verdict.FAIL, found, advice)
    if apart_ms - heard.uncertain_ms > CLOCK_WARN_MS:
        return Checkup("clock", Verdict.WARN, found, advice)
    return Checkup("clock", Verdict.OK, found)


def port(settings: Settings) -> Checkup:
    """Whether a coordinator could listen where the settings say."""
    place = f"{settings.host}:{settings.port}"
    try:
        family, *_, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        advice = "another program has it; choose another --port, or another --host"
        return Checkup("port", Verdict.FAIL, f"{place}: {error.strerror}", advice)
    return Checkup("port", Verdict.OK, f"{place} is free")
