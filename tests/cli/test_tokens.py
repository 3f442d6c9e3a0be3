import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rota.cli.commands.tokens import token
from rota.cli.main import cli
from rota.cli.render.output import ExitCode
from tests.cli.conftest import Command, document

NOWHERE = "http://127.0.0.1:1"


def test_a_coordinator_makes_lists_and_revokes_tokens(rota: Command) -> None:
    created = document(
        rota(
            "token", "create", "--scope", "worker", "--queue", "mail", "--worker-id", "w1", "--json"
        )
    )
    listed = document(rota("token", "ls", "--json"))["items"]
    revoked = rota("token", "revoke", created["id"])

    assert created["token"].startswith("rota_")
    assert [(token["scopes"], token["queues"], token["worker_id"]) for token in listed] == [
        (["worker"], ["mail"], "w1")
    ]
    assert "token" not in listed[0]
    assert revoked.stdout == f"revoked token {created['id']}\n"
    assert rota("token", "ls").stdout == "no tokens\n"
    assert rota("token", "revoke", created["id"]).exit_code == ExitCode.FAILED


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line in an empty folder, where no coordinator runs."""
    monkeypatch.chdir(tmp_path)
    for name, command in token.commands.items():
        for option in command.params:
            if option.name == "url":
                monkeypatch.setattr(option, "default", NOWHERE)
                break
        else:
            assert name == "generate", "asks no coordinator"

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, env={"ROTA_URL": None})

    return run


def test_a_store_without_a_coordinator_takes_tokens_directly(
    alone: Command, tmp_path: Path
) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/own.db")
    created = alone(
        "token",
        "create",
        "--scope",
        "admin",
        "--scope",
        "read",
        "--name",
        "ops",
        "--expires-in-ms",
        "60000",
        *store,
    )
    listed = document(alone("token", "ls", *store, "--json"))["items"]

    secret = created.stdout.split()[1]
    assert secret.startswith("rota_")
    assert "not shown again" in created.stderr
    assert [(token["name"], token["scopes"]) for token in listed] == [("ops", ["admin", "read"])]
    assert listed[0]["expires_at_ms"] - listed[0]["created_at_ms"] == 60_000
    assert secret.encode() not in (tmp_path / "own.db").read_bytes()
    assert alone("token", "revoke", listed[0]["id"], *store).exit_code == ExitCode.OK
    assert document(alone("token", "ls", *store, "--json"))["items"] == []


def test_a_secret_made_before_is_stored_once(alone: Command, tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/own.db")
    secret = alone("token", "generate").stdout.strip()
    file = tmp_path / "secret"
    file.write_text(f"{secret}\n", encoding="utf-8")
    create = ("token", "create", "--scope", "admin", "--secret-file", str(file))

    first = alone(*create, *store)
    again = alone(*create, *store)
    listed = document(alone("token", "ls", *store, "--json"))["items"]

    assert (first.exit_code, again.exit_code) == (0, 0)
    assert len(listed) == 1
    assert secret not in first.stdout + first.stderr + again.stdout
    assert secret.encode() not in (tmp_path / "own.db").read_bytes()


@pytest.mark.parametrize("secret", ["", "secret", "rota_" + "a" * 42, "rota_" + "é" * 43])
def test_a_secret_that_may_be_guessed_is_refused(
    alone: Command, tmp_path: Path, secret: str
) -> None:
    file = tmp_path / "secret"
    file.write_text(secret, encoding="utf-8")
    create = ("token", "create", "--scope", "admin", "--secret-file", str(file))

    refused = alone(*create, "--store", f"sqlite:///{tmp_path}/own.db")

    assert refused.exit_code != 0
    assert "rota token generate" in refused.stderr
    assert "goes with --store" in alone(*create).stderr


def test_an_unknown_token_in_the_store_is_exit_code_1(alone: Command) -> None:
    ended = alone("token", "revoke", "nothing", "--store", "sqlite:///rota.db")

    assert ended.exit_code == ExitCode.FAILED


def test_a_named_coordinator_that_does_not_answer_is_not_replaced_by_a_file(
    alone: Command, tmp_path: Path
) -> None:
    ended = alone("token", "create", "--scope", "admin", "--url", NOWHERE)

    assert ended.exit_code == ExitCode.UNUSABLE
    assert list(tmp_path.iterdir()) == []


def test_without_any_coordinator_the_store_of_the_settings_is_used_and_named(
    alone: Command, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.rota]\nstore = "sqlite:///set.db"\n')

    ended = alone("token", "create", "--scope", "admin", "--json")

    assert json.loads(ended.stdout)["scopes"] == ["admin"]
    assert "using the store sqlite:///set.db itself" in ended.stderr
    assert (tmp_path / "set.db").exists()


@pytest.mark.parametrize("bound", [("--queue", "a"), ("--service", "s"), ("--worker-id", "w")])
def test_an_admin_that_is_bound_is_refused_with_and_without_a_coordinator(
    rota: Command, alone: Command, tmp_path: Path, bound: tuple[str, str]
) -> None:
    create = ("token", "create", "--scope", "admin", *bound)

    for refused in (rota(*create), alone(*create, "--store", f"sqlite:///{tmp_path}/own.db")):
        assert refused.exit_code != 0
        assert "cannot be bound" in refused.stderr
