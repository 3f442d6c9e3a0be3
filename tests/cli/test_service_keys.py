import shlex
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rota.cli.main import cli
from rota.cli.render.output import ExitCode
from rota.gateways.zeromq.auth.keys import read_keys
from tests.cli.conftest import Command, document

KEY_LENGTH = 40


@pytest.fixture
def keys(tmp_path: Path) -> Command:
    """`rota services keys`, on a file in a folder of its own."""

    def run(*arguments: str, stdin: str | None = None) -> Result:
        environment = {"ROTA_ZMQ_KEYS": str(tmp_path / "keys.toml")}
        return CliRunner().invoke(
            cli, ["services", "keys", *arguments], input=stdin, env=environment
        )

    return run


def test_a_client_is_let_in_by_a_new_pair_of_keys(keys: Command, tmp_path: Path) -> None:
    added = document(keys("add", "feeds", "--service", "feed-*", "--worker", "feed-?", "--json"))
    noted = read_keys(tmp_path / "keys.toml")

    assert {len(added[name]) for name in ("public", "secret", "coordinator")} == {KEY_LENGTH}
    assert noted.coordinator.public == added["coordinator"]
    assert [(one.name, one.public, one.services, one.workers) for one in noted.client] == [
        ("feeds", added["public"], ("feed-*",), ("feed-?",))
    ]
    assert added["secret"] not in (tmp_path / "keys.toml").read_text(encoding="utf-8")


def test_the_keys_are_printed_as_variables_that_a_shell_can_read(keys: Command) -> None:
    printed = keys("add", "feeds").stdout
    read = dict(word.split("=", 1) for word in shlex.split(printed))

    assert list(read) == ["ROTA_ZMQ_PUBLIC_KEY", "ROTA_ZMQ_SECRET_KEY", "ROTA_ZMQ_SERVER_KEY"]
    assert {len(key) for key in read.values()} == {KEY_LENGTH}


def test_the_file_is_made_with_the_first_client_and_is_its_owners_alone(
    keys: Command, tmp_path: Path
) -> None:
    first, second = keys("add", "feeds"), keys("add", "mails")

    assert f"created {tmp_path}/keys.toml" in first.stderr
    assert "made" not in second.stderr
    assert "store the secret now" in first.stderr
    assert stat.S_IMODE((tmp_path / "keys.toml").stat().st_mode) == 0o600


def test_a_client_may_bring_its_own_key(keys: Command) -> None:
    public = document(keys("add", "feeds", "--json"))["public"]
    keys("remove", "feeds")

    added = document(keys("add", "other", "--public", public, "--json"))
    wrong = keys("add", "third", "--public", "short")

    assert (added["public"], added["secret"]) == (public, None)
    assert wrong.exit_code == ExitCode.UNUSABLE
    assert "public" in wrong.stderr


def test_clients_are_listed_without_any_secret(keys: Command, tmp_path: Path) -> None:
    added = document(keys("add", "feeds", "--service", "feed-*", "--json"))

    listed = keys("ls")
    as_json = document(keys("ls", "--json"))

    assert listed.stdout.splitlines()[1].split() == ["feeds", added["public"], "feed-*", "*"]
    assert added["coordinator"] in listed.stderr
    assert as_json["items"][0]["name"] == "feeds"
    secrets = {added["secret"], read_keys(tmp_path / "keys.toml").coordinator.secret}
    assert not [secret for secret in secrets if secret in listed.output + str(as_json)]


def test_a_client_that_was_removed_is_gone(keys: Command) -> None:
    keys("add", "feeds")

    removed = keys("remove", "feeds")
    again = keys("remove", "feeds")

    assert removed.stdout == "removed the key of feeds\n"
    assert again.exit_code == ExitCode.FAILED
    assert keys("ls").stdout.startswith("no clients; add one with: rota services keys add")


def test_the_same_name_twice_is_refused(keys: Command) -> None:
    keys("add", "feeds")

    assert keys("add", "feeds").exit_code == ExitCode.FAILED


def test_without_a_file_the_command_says_how_to_name_one() -> None:
    ended = CliRunner().invoke(cli, ["services", "keys", "ls"], env={"ROTA_ZMQ_KEYS": None})

    assert ended.exit_code == ExitCode.UNUSABLE
    assert "--zmq-keys FILE" in ended.stderr
