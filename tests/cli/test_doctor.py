import errno
import http.server
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from click.testing import CliRunner, Result

from rota.administration import open_database
from rota.cli.commands.monitoring import checks
from rota.cli.commands.monitoring.checks import CheckResult, HealthProbe
from rota.cli.main import cli
from rota.cli.render.output import ExitCode
from rota.core.flows.model import Concurrency
from rota.core.replicas import Role
from rota.core.tasks.model import NewTask
from rota.errors import Unavailable
from rota.messages import (
    Check,
    HealthAnswer,
    LeaderView,
    ReplicaView,
    StoreView,
    SystemView,
)
from rota.messages.limits import LimitRecountView
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.settings import Settings
from tests.certificates import Certificate
from tests.cli.conftest import Command, document

UNHEALTHY = HealthAnswer(
    status="unhealthy",
    checks=[Check(component="store", isHealthy=False, detail="disk full")],
    components=[],
    uptime=1.0,
    timestamp=0,
    version="0",
)
HEALTHY = msgspec.structs.replace(UNHEALTHY, status="healthy", checks=[])


def system(
    *, address: str = "http://10.0.0.1:7070", hosts: tuple[str, ...] = ("one", "two"), **more: Any
) -> SystemView:
    """What a coordinator says that shares its store with one on each of these hosts."""
    leader = LeaderView(name="a", address=address, epoch=3, since_ms=0, is_here=True)
    replicas = [
        ReplicaView(
            name=host,
            url=None,
            host=host,
            version="1",
            started_at_ms=0,
            seen_ms=0,
            is_away=False,
            is_here=False,
        )
        for host in hosts
    ]
    fields: dict[str, Any] = {"leader": leader, "replicas": replicas, **more}
    return SystemView(
        version="1",
        python="3",
        platform="here",
        started_at_ms=0,
        now_ms=60_000,
        store=StoreView(kind="postgresql", place="postgresql://db/work"),
        figures={},
        settings=[],
        limits=[],
        **fields,
    )


def store_of(folder: Path) -> Settings:
    return Settings(store=f"sqlite:///{folder}/rota.db")


@pytest.fixture
def ill_url() -> Iterator[str]:
    """A coordinator that says it is not well."""

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = msgspec.json.encode(UNHEALTHY)
            self.send_response(503)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def invoke(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environment)


# --- health --------------------------------------------------------------------------------------


def test_a_healthy_coordinator_is_exit_code_0(rota: Command) -> None:
    assert document(rota("health", "--json"))["status"] == "healthy"
    assert rota("health").stdout.startswith("status ")


def test_an_unhealthy_coordinator_is_exit_code_1_with_the_reason(ill_url: str) -> None:
    ended = invoke("health", "--url", ill_url)

    assert ended.exit_code == ExitCode.FAILED
    assert "disk full" in ended.stdout


def test_an_unreachable_coordinator_is_exit_code_2() -> None:
    assert invoke("health", "--url", "http://127.0.0.1:1").exit_code == ExitCode.UNUSABLE


# --- doctor --------------------------------------------------------------------------------------


def test_all_is_well_beside_a_healthy_coordinator(rota: Command, tmp_path: Path) -> None:
    report = document(rota("doctor", "--store", f"sqlite:///{tmp_path}/rota.db", "--json"))

    found = {check["check"]: check["state"] for check in report["checks"]}
    assert found.pop("limits", "ok") == "ok"  # other tests of this coordinator may have used some
    assert found == {
        "python": "ok",
        "sqlite": "ok",
        "store": "ok",
        "disk": "ok",
        "coordinator": "ok",
        "clock": "ok",
    }
    assert report["status"] == "ok"


def test_a_failed_check_is_exit_code_1_with_advice(ill_url: str, tmp_path: Path) -> None:
    ended = invoke("doctor", "--url", ill_url, "--store", f"sqlite:///{tmp_path}/rota.db")

    assert ended.exit_code == ExitCode.FAILED
    (line,) = [line for line in ended.stdout.splitlines() if "coordinator" in line.split()[:2]]
    assert line.startswith("fail")
    assert "disk full" in line
    assert "log" in line


def test_a_store_that_is_not_there_yet_is_left_so(tmp_path: Path) -> None:
    assert checks.store(store_of(tmp_path)).state is CheckResult.OK
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_use_names_its_process(tmp_path: Path) -> None:
    database = open_database(store_of(tmp_path))

    found = checks.store(store_of(tmp_path))

    database.close()
    assert found.state is CheckResult.OK
    assert f"in use by process {os.getpid()}" in found.found


@pytest.mark.parametrize(("version", "verdict"), [(0, CheckResult.WARN), (999, CheckResult.FAIL)])
def test_a_store_of_another_version_is_told(
    tmp_path: Path, version: int, verdict: CheckResult
) -> None:
    connection = apsw.Connection(str(tmp_path / "rota.db"))
    connection.execute(f"CREATE TABLE t (x); PRAGMA user_version = {version}")
    connection.close()

    assert checks.store(store_of(tmp_path)).state is verdict


def test_a_file_that_is_no_database_fails(tmp_path: Path) -> None:
    (tmp_path / "rota.db").write_text("a diary, perhaps" * 100)

    assert checks.store(store_of(tmp_path)).state is CheckResult.FAIL


def test_a_folder_that_is_not_there_fails(tmp_path: Path) -> None:
    found = checks.disk(store_of(tmp_path / "nowhere"))

    assert found.state is CheckResult.FAIL
    assert "choose another --store" in found.advice


def test_a_busy_port_fails_and_a_free_one_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(port=taken.getsockname()[1])
        assert checks.port(settings).state is CheckResult.FAIL

    assert checks.port(settings).state is CheckResult.OK


def test_a_coordinator_that_was_named_must_answer() -> None:
    error = Unavailable("cannot be reached")

    assert checks.coordinator(error, "there", is_named=True).state is CheckResult.FAIL
    assert checks.coordinator(error, "there", is_named=False).state is CheckResult.WARN


def test_warnings_of_the_coordinator_are_passed_on() -> None:
    health = msgspec.structs.replace(HEALTHY, warnings=["insecure"])

    found = checks.coordinator(HealthProbe(health, 0, 0), "there", is_named=True)

    assert (found.state, found.advice) == (CheckResult.WARN, "insecure")


@pytest.mark.parametrize(
    ("clock_ms", "verdict"),
    [
        (0, CheckResult.OK),
        (-1_000, CheckResult.OK),
        (2_000, CheckResult.WARN),
        (-90_000, CheckResult.FAIL),
    ],
)
def test_clocks_must_agree(clock_ms: int, verdict: CheckResult) -> None:
    assert checks.clock(HealthProbe(HEALTHY, clock_ms, 5)).state is verdict


# --- migrate -------------------------------------------------------------------------------------


def test_migrate_says_from_which_version_to_which(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/rota.db")

    first = document(invoke("migrate", *store, "--json"))
    again = invoke("migrate", *store)

    assert first["from_version"] == 0
    assert first["to_version"] >= 1
    assert f"up to date: schema version {first['to_version']}" in again.stdout


@pytest.mark.parametrize("host", ["192.0.2.7:7070", "rota.example", "[2001:db8::1]:80"])
def test_a_coordinator_that_is_called_over_the_network_without_tls_is_warned_of(host: str) -> None:
    check = checks.encryption(f"http://{host}")

    assert check is not None
    assert (check.state, host in check.found) == (CheckResult.WARN, True)
    assert "--tls-cert and --tls-key" in check.advice


@pytest.mark.parametrize("url", ["http://127.0.0.1:7070", "http://[::1]:1", "https://rota.example"])
def test_nothing_is_said_of_loopback_and_tls(url: str) -> None:
    assert checks.encryption(url) is None


def test_the_certificate_of_the_settings_is_looked_at(
    tmp_path: Path, certificate: Certificate
) -> None:
    good = checks.certificate(Settings(tls_cert=certificate.cert, tls_key=certificate.key))
    bad = checks.certificate(Settings(tls_cert=certificate.cert, tls_key=str(tmp_path / "none")))

    assert checks.certificate(Settings()) is None
    assert good is not None
    assert bad is not None
    assert (good.state, bad.state) == (CheckResult.OK, CheckResult.FAIL)
    assert "tls_key" in bad.found


def test_the_doctor_takes_a_certificate_by_its_flags(
    rota: Command, tmp_path: Path, certificate: Certificate
) -> None:
    flags = ("--tls-cert", certificate.cert, "--tls-key", certificate.key)
    report = document(rota("doctor", "--store", f"sqlite:///{tmp_path}/x.db", *flags, "--json"))

    states = {check["check"]: check["state"] for check in report["checks"]}
    assert states["certificate"] == "ok"


# --- coordinators on one store -------------------------------------------------------------------


def test_who_leads_is_told_with_the_number_of_changes() -> None:
    found = checks.leader(system())

    assert found is not None
    assert found.state is CheckResult.OK
    assert found.found == "a at http://10.0.0.1:7070 has led for 1 min, epoch 3: 2 changes so far"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"])
def test_a_leader_that_other_hosts_cannot_reach_is_warned_of(host: str) -> None:
    address = f"http://{host}:7070"

    afar = checks.leader(system(address=address))
    near = checks.leader(system(address=address, hosts=("one", "one")))

    assert afar is not None
    assert near is not None
    assert (afar.state, near.state) == (CheckResult.WARN, CheckResult.OK)
    assert "--advertise" in afar.advice


def test_a_coordinator_without_a_leader_fails() -> None:
    found = checks.leader(system(role=Role.SEEKING))

    assert found is not None
    assert found.state is CheckResult.FAIL


def test_a_store_that_is_not_shared_has_no_leader_to_check() -> None:
    assert checks.leader(system(leader=None)) is None
    assert checks.replicas(system(hosts=("one",))) is None


def test_coordinators_of_several_versions_are_warned_of() -> None:
    known = system()
    known.replicas[1] = msgspec.structs.replace(known.replicas[1], version="2")

    found = checks.replicas(known)

    assert found is not None
    assert found.state is CheckResult.WARN
    assert "1, 2" in found.found


# --- limits ---------------------------------------------------------------------------------------


def test_limits_are_recounted_where_there_are_some(rota: Command, client: Client) -> None:
    client.run(calls.submit([NewTask(name="add", concurrency=Concurrency("doctor:one"))]))

    report = document(rota("doctor", "--json"))

    (check,) = [one for one in report["checks"] if one["check"] == "limits"]
    assert check["state"] == "ok"
    assert "are as leases say" in check["found"]


def test_limits_that_count_wrong_fail() -> None:
    class Recounting:
        def run(self, _: object) -> LimitRecountView:
            return LimitRecountView(limits=1, slots=2, flows=0, differences=["limit 'a' is wrong"])

    check = checks.limits(Recounting())  # type: ignore[arg-type]

    assert check is not None
    assert (check.state, check.found) == (CheckResult.FAIL, "limit 'a' is wrong")


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "free space on the disk"), (errno.EACCES, "writable")]
)
def test_a_disk_that_cannot_be_written_to_comes_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refuse(_folder: Path) -> float:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(checks, "_sync_ms", refuse)

    found = checks.disk(Settings(store=f"sqlite:///{tmp_path}/rota.db"))

    assert found.state is CheckResult.FAIL
    assert remedy in found.advice


@pytest.mark.parametrize(
    ("free", "verdict", "size"),
    [(16 * 2**20, CheckResult.WARN, "16 MiB"), (2**40, CheckResult.OK, "1024.0 GiB")],
)
def test_a_disk_that_is_nearly_full_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, verdict: CheckResult, size: str
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: usage)
    monkeypatch.setattr(checks, "_sync_ms", lambda _folder: 0.1)

    found = checks.disk(Settings(store=f"sqlite:///{tmp_path}/rota.db"))

    assert found.state is verdict
    assert f", {size} are free" in found.found
