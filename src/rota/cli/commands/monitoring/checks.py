"""The checks of `rota doctor`, one function each, with advice."""

import errno
import fcntl
import os
import platform
import shutil
import socket
import statistics
import sys
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import apsw
import msgspec
from msgspec import Struct

from rota.cli.render.formatting import duration
from rota.core.replicas import Role
from rota.errors import RotaError
from rota.gateways.auth.authenticator import is_loopback
from rota.messages import HealthAnswer, SystemView
from rota.sdk.client import calls, limit_calls
from rota.sdk.client.client import Client
from rota.settings import Settings
from rota.store import migrator
from rota.store.opening import file_of, is_postgres
from rota.store.sqlite.database import MEMORY, path_of
from rota.tls import server_context

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 51, 3)  # before it, a reset of the write-ahead log could lose commits
SYNCS = 20
GIB = 2**30
MIB = 2**20
SLOW_SYNC_MS = 10.0
CLOCK_WARN_MS = 1_000
CLOCK_FAIL_MS = 60_000
ANSWER_TIMEOUT_S = 5.0
UNSPECIFIED = {"0.0.0.0", "::"}  # noqa: S104 - not bound here
OUTDATED = "rota up or rota migrate brings it up to date"


class CheckResult(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class DoctorCheck(Struct):
    check: str
    state: CheckResult
    found: str
    advice: str = ""


class HealthProbe(NamedTuple):
    """A coordinator's answer, and how far its clock is ahead of ours."""

    health: HealthAnswer
    clock_ms: int
    uncertain_ms: int


def _ok(check: str, found: str) -> DoctorCheck:
    return DoctorCheck(check, CheckResult.OK, found)


def _warn(check: str, found: str, advice: str) -> DoctorCheck:
    return DoctorCheck(check, CheckResult.WARN, found, advice)


def _fail(check: str, found: str, advice: str) -> DoctorCheck:
    return DoctorCheck(check, CheckResult.FAIL, found, advice)


def python() -> DoctorCheck:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return _fail("python", found, "install Python 3.11 or newer")
    return _ok("python", found)


def sqlite() -> DoctorCheck:
    found = f"SQLite {apsw.sqlite_lib_version()} by apsw {apsw.apsw_version()}"
    if tuple(map(int, apsw.sqlite_lib_version().split("."))) < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        return _fail("sqlite", found, f"install an apsw with SQLite {wanted}")
    return _ok("sqlite", found)


def store(settings: Settings) -> DoctorCheck:
    """Read the owner and the schema version of the store, without changing it."""
    return _postgres(settings) if is_postgres(settings.store) else _file(path_of(settings.store))


def _file(path: str) -> DoctorCheck:
    if path == MEMORY:
        advice = "everything is lost when the coordinator ends; give a file with --store"
        return _warn("store", "in memory only", advice)
    if not Path(path).exists():
        return _ok("store", f"{path} does not exist yet; rota up creates it")
    try:
        version = _schema_version(path)
        holder = _holder(path)
    except (apsw.Error, OSError) as error:
        advice = "make the file readable, or name another one with --store"
        return _fail("store", f"{path} cannot be read: {error}", advice)

    known = migrator.newest_version()
    used = f", in use by process {holder}" if holder else ""
    found = f"{path}: schema version {version} of {known}{used}"
    if version > known:
        return _fail("store", found, "upgrade this Rota: the file is newer")
    if version < known:
        return _warn("store", found, OUTDATED)
    return _ok("store", found)


def _postgres(settings: Settings) -> DoctorCheck:
    try:
        # An extra: only installations with a store on PostgreSQL need it.
        from rota.store.postgres.probe import probe  # noqa: PLC0415

        seen = probe(settings.store, settings.postgres_schema)
    except ImportError:
        return _fail("store", "psycopg is missing", "pip install 'rota[postgres]'")
    except RotaError as error:
        advice = "check that the server runs, and that user, password and database are right"
        return _fail("store", error.detail, advice)
    shape = f"schema version {seen.version} of {seen.known}"
    found = f"{seen.address.shown}: PostgreSQL {seen.server}, {shape}"
    if seen.problem is not None:
        return _fail("store", found, seen.problem)
    if seen.version < seen.known:
        return _warn("store", found, OUTDATED)
    return _ok("store", found)


def _schema_version(path: str) -> int:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return migrator.version(connection)
    finally:
        connection.close()


def _holder(path: str) -> str | None:
    """The process that has the store open; the lock file names it."""
    try:
        descriptor = os.open(f"{path}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(descriptor, 100).decode(errors="replace").partition("\n")[0]
        return pid or "unknown"
    else:
        return None
    finally:
        os.close(descriptor)


def disk(settings: Settings) -> DoctorCheck:
    """Measure fsync, which every commit waits for, and the free space."""
    path = file_of(settings.store)
    folder = Path(tempfile.gettempdir()) if path is None else Path(path).absolute().parent
    try:
        typical_ms = _sync_ms(folder)
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        remedy = f"free space on the disk of {folder}" if is_full else f"make {folder} writable"
        advice = f"{remedy}, or choose another --store"
        return _fail("disk", f"cannot write: {error.strerror}", advice)
    free = shutil.disk_usage(folder).free
    found = f"fsync takes {typical_ms:.2f} ms in {folder}, {_size(free)} are free"
    if free < settings.store_disk_low_bytes:
        advice = "a full disk stops every change: make room, or lower --history-keep-ms"
        return _warn("disk", found, advice)
    if typical_ms > SLOW_SYNC_MS:
        advice = "each commit waits this long; choose a faster disk for more commits per second"
        return _warn("disk", found, advice)
    return _ok("disk", found)


def _size(number: int) -> str:
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / MIB:.0f} MiB"


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


def ask_health(client: Client) -> HealthProbe | RotaError:
    call = msgspec.structs.replace(calls.health(), timeout_s=ANSWER_TIMEOUT_S)
    sent_ms = time.time() * 1000
    try:
        health = client.without_repeats().run(call)
    except RotaError as error:
        return error
    took_ms = time.time() * 1000 - sent_ms
    return HealthProbe(health, int(health.timestamp - sent_ms - took_ms / 2), int(took_ms / 2))


def coordinator(answer: HealthProbe | RotaError, address: str, *, is_named: bool) -> DoctorCheck:
    if isinstance(answer, RotaError):
        state = CheckResult.FAIL if is_named else CheckResult.WARN
        return DoctorCheck("coordinator", state, answer.detail, "start one with: rota up")
    health = answer.health
    if health.status != "healthy":
        ill = [check for check in health.checks if not check.isHealthy]
        reasons = ", ".join(f"{check.component}: {check.detail or 'unhealthy'}" for check in ill)
        return _fail("coordinator", reasons, "read the coordinator's log")
    found = f"{address} is healthy, version {health.version}"
    if health.warnings:
        return _warn("coordinator", found, "; ".join(health.warnings))
    return _ok("coordinator", found)


def ask_system(client: Client) -> SystemView | None:
    """Ask the coordinator about itself; None: the caller may not, or there was no answer."""
    try:
        return client.run(msgspec.structs.replace(calls.system(), timeout_s=ANSWER_TIMEOUT_S))
    except RotaError:
        return None


def limits(client: Client) -> DoctorCheck | None:
    """What limits count, against leases and queued tasks; None: not allowed, or there are none."""
    call = msgspec.structs.replace(limit_calls.recount_limits(), timeout_s=ANSWER_TIMEOUT_S)
    try:
        found = client.run(call)
    except RotaError:
        return None
    if not found.limits and not found.flows:
        return None
    if found.differences:
        advice = "start the coordinator again, which counts everything again, and report this"
        return _fail("limits", "; ".join(found.differences), advice)
    text = f"{found.limits:,} limits and {found.slots:,} taken slots are as leases say"
    return _ok("limits", text)


def leader(known: SystemView) -> DoctorCheck | None:
    """The coordinator that leads the store; None: the store is not shared."""
    if known.role is Role.SEEKING:
        advice = (
            "check that the coordinators reach each other: each needs an address in --advertise "
            "that the others can connect to"
        )
        return _fail("leader", "the coordinator reaches no leader", advice)
    found = known.leader
    if found is None:
        return None
    since = duration(max(0, known.now_ms - found.since_ms))
    changes = found.epoch - 1
    text = (
        f"{found.name} at {found.address} has led for {since}, epoch {found.epoch}: "
        f"{changes:,} {'change' if changes == 1 else 'changes'} so far"
    )
    hosts = {one.host for one in known.replicas if not one.is_away}
    if len(hosts) > 1 and _is_local(found.address):
        advice = (
            f"the coordinators are on {len(hosts)} hosts, and this address means each host "
            "itself: give each coordinator --advertise HOST:PORT"
        )
        return _warn("leader", text, advice)
    return _ok("leader", text)


def _is_local(url: str) -> bool:
    """Whether an address means the machine that connects to it."""
    host = urlsplit(url).hostname or ""
    return is_loopback(host) or host in UNSPECIFIED


def replicas(known: SystemView) -> DoctorCheck | None:
    """The coordinators that share the store; None: there is only one."""
    if len(known.replicas) == 1:
        return None
    here = [one for one in known.replicas if not one.is_away]
    away = [one.name for one in known.replicas if one.is_away]
    versions = sorted({one.version for one in here})
    found = f"{len(here)} on one store, version {', '.join(versions)}"
    if away:
        advice = "start them again, or leave them: they are removed an hour after their end"
        return _warn("replicas", f"{found}; away: {', '.join(away)}", advice)
    if len(versions) > 1:
        return _warn("replicas", found, "bring all of them to one version")
    return _ok("replicas", found)


def certificate(settings: Settings) -> DoctorCheck | None:
    """Whether a coordinator could serve with the certificate of the settings; None: it has none."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    try:
        server_context(settings.tls_cert, settings.tls_key)
    except RotaError as error:
        advice = "name other files with --tls-cert and --tls-key"
        return _fail("certificate", error.detail, advice)
    return _ok("certificate", f"{settings.tls_cert} and its key can be used")


def encryption(address: str) -> DoctorCheck | None:
    """A coordinator that is called over the network without TLS; None: there is none."""
    parts = urlsplit(address)
    if parts.scheme != "http" or is_loopback(parts.hostname or ""):
        return None
    return _warn(
        "encryption",
        f"{address} is clear text: others on the network can read tokens",
        "start the coordinator with --tls-cert and --tls-key, or put a TLS proxy in front of it",
    )


def clock(probe: HealthProbe) -> DoctorCheck:
    apart_ms = abs(probe.clock_ms)
    found = f"{apart_ms} ms from the coordinator's (+-{probe.uncertain_ms} ms)"
    advice = "set both clocks by NTP; the coordinator's clock decides on run_at_ms and expiry times"
    if apart_ms - probe.uncertain_ms > CLOCK_FAIL_MS:
        return _fail("clock", found, advice)
    if apart_ms - probe.uncertain_ms > CLOCK_WARN_MS:
        return _warn("clock", found, advice)
    return _ok("clock", found)


def port(settings: Settings) -> DoctorCheck:
    """Whether a coordinator could listen on the host and port of the settings."""
    place = f"{settings.host}:{settings.port}"
    try:
        family, *_, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        advice = "another program uses it; choose another --port, or another --host"
        return _fail("port", f"{place}: {error.strerror}", advice)
    return _ok("port", f"{place} is free")
