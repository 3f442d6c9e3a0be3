"""Does a coordinator start, say so, refuse what it must, and end cleanly?"""

import json
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import pytest

from rota.cli.commands.up import usable_urls
from rota.cli.render.output import ExitCode
from tests.cli.processes import coordinator, run, running

STOPPING = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.slow
@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_shuts_down_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with coordinator(tmp_path) as (process, url):
        assert run("health", "--url", url, folder=tmp_path).returncode == ExitCode.OK

        process.signal(number)

        assert process.ends() == ExitCode.OK
        assert "Traceback" not in process.output
        assert "stopping" in process.output


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with coordinator(tmp_path) as (process, url):
        # A request whose body never comes keeps the shutdown waiting for its full grace.
        with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as client:
            client.sendall(b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\n")
            client.sendall(b"content-length: 10\r\nexpect: 100-continue\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 100")
            process.signal(signal.SIGTERM)
            process.wait_for("stopping")

            process.signal(signal.SIGTERM)

            assert process.ends() == ExitCode.INTERRUPTED
        assert "Traceback" not in process.output


def test_people_are_told_what_to_open(tmp_path: Path) -> None:
    with running("up", "--port", "0", folder=tmp_path) as process:
        url = process.wait_for("http://").split()[-1]

        assert process.wait_for("docs").split() == ["docs", f"{url}/docs"]
        assert process.wait_for("store").split() == ["store", f"{tmp_path}/rota.db"]
        shards = process.wait_for("shards").split()
        assert (shards[0], shards[1].rpartition(":")[0]) == ("shards", "tcp://127.0.0.1")
        assert f"rota worker MODULE:APP --url {url}" in process.wait_for("worker")
        assert process.wait_for("dashboard").split() == ["dashboard", url]


def test_the_command_of_a_worker_that_needs_a_token_has_one(tmp_path: Path) -> None:
    run("token", "create", "--scope", "admin", "--store", "sqlite:///rota.db", folder=tmp_path)
    with running("up", "--port", "0", "--host", "0.0.0.0", folder=tmp_path) as process:
        line = process.wait_for("rota worker")

    assert line.split()[1:5] == ["ROTA_TOKEN=TOKEN", "rota", "worker", "MODULE:APP"]


def test_programs_are_told_on_one_line(tmp_path: Path) -> None:
    with running("up", "--port", "0", "--json", folder=tmp_path) as process:
        announced = json.loads(process.wait_for("url"))

        assert announced["url"].startswith("http://127.0.0.1:")
        assert announced["pid"] == process.pid
        assert announced["store"] == f"{tmp_path}/rota.db"
        assert announced["shards"].startswith("tcp://127.0.0.1:")


@pytest.mark.slow
def test_a_second_coordinator_on_the_same_file_is_refused_and_told_who_has_it(
    tmp_path: Path,
) -> None:
    with coordinator(tmp_path) as (process, url):
        ended = run("up", "--port", "0", folder=tmp_path)

        assert ended.returncode == ExitCode.UNUSABLE
        assert f"pid {process.pid}" in ended.stderr
        assert f"ROTA_URL={url}" in ended.stderr
        assert ended.stderr.endswith("(store_locked)\n")
        assert ended.stderr.count("\n") == 1


def test_a_store_of_a_newer_rota_is_refused(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "rota.db"))
    connection.execute("PRAGMA user_version = 999")
    connection.close()

    ended = run("up", "--port", "0", folder=tmp_path)

    assert ended.returncode == ExitCode.UNUSABLE
    assert "newer Rota" in ended.stderr
    assert ended.stderr.endswith("(store_too_new)\n")
    assert ended.stderr.count("\n") == 1


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rota.db").write_text("a diary, perhaps, but not a database" * 100)

    ended = run("up", "--port", "0", folder=tmp_path)

    assert ended.returncode == ExitCode.UNUSABLE
    assert "rota.db" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_busy_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        ended = run("up", "--port", port, folder=tmp_path)

    assert ended.returncode == ExitCode.UNUSABLE
    assert f"port {port}" in ended.stderr
    assert "--port" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_busy_port_for_zeromq_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        ended = run("up", "--port", "0", "--zmq-port", port, folder=tmp_path)

    assert ended.returncode == ExitCode.UNUSABLE
    assert f"port {port}" in ended.stderr
    assert "--zmq-port" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
def test_an_open_door_to_strangers_is_refused_until_there_is_a_token(tmp_path: Path) -> None:
    refused = run("up", "--host", "0.0.0.0", "--port", "0", folder=tmp_path)

    assert refused.returncode == ExitCode.UNUSABLE
    assert "rota token create" in refused.stderr
    assert refused.stderr.count("\n") == 1

    created = run(
        "token",
        "create",
        "--scope",
        "admin",
        "--store",
        "sqlite:///rota.db",
        "--json",
        folder=tmp_path,
    )
    secret = json.loads(created.stdout)["token"]

    with coordinator(tmp_path, "--host", "0.0.0.0") as (_process, url):
        without = run("tasks", "ls", "--url", url, folder=tmp_path)
        wrong = run("tasks", "ls", "--url", url, "--token", secret[::-1], folder=tmp_path)
        right = run("tasks", "ls", "--url", url, folder=tmp_path, ROTA_TOKEN=secret)

    assert (without.returncode, wrong.returncode) == (ExitCode.UNUSABLE, ExitCode.UNUSABLE)
    assert without.stderr.endswith("(unauthorized)\n")
    assert wrong.stderr.endswith("(unauthorized)\n")
    assert right.returncode == ExitCode.OK


def test_insecure_is_shown_loudly(tmp_path: Path) -> None:
    with coordinator(tmp_path, "--host", "0.0.0.0", "--insecure") as (process, url):
        process.wait_for("everyone who can reach 0.0.0.0")

        health = json.loads(run("health", "--url", url, "--json", folder=tmp_path).stdout)

    assert "insecure" in health["warnings"][0]


def test_a_wrong_setting_names_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.rota]\nport = "many"\n')

    ended = run("up", folder=tmp_path)

    assert ended.returncode == ExitCode.UNUSABLE
    assert "pyproject.toml" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "here", "elsewhere"),
    [
        ("http://127.0.0.1:7070", "http://127.0.0.1:7070", "http://127.0.0.1:7070"),
        ("http://0.0.0.0:7070", "http://127.0.0.1:7070", "http://box:7070"),
        ("https://[::]:7070", "https://[::1]:7070", "https://box:7070"),
    ],
)
def test_the_addresses_of_a_coordinator_on_all_interfaces_can_be_connected_to(
    url: str, here: str, elsewhere: str
) -> None:
    assert usable_urls(url, "box") == (here, elsewhere)
