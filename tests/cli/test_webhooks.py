"""`rota webhooks` and `rota queues push`, against a served coordinator."""

from pathlib import Path

from rota.cli.render.output import ExitCode
from tests.cli.conftest import Command, document

URL = "https://hooks.invalid/path"
SECRET = "whsec_" + "A" * 44


def test_webhooks_are_put_listed_shown_and_deleted(rota: Command) -> None:
    made = rota("webhooks", "put", "listed", "--to", URL, "--event", "run-*", "--queue", "mail")
    table = rota("webhooks", "ls").stdout.splitlines()
    shown = rota("webhooks", "show", "listed").stdout
    refused = rota("webhooks", "delete", "listed")
    gone = rota("webhooks", "delete", "listed", "--yes")

    assert made.exit_code == ExitCode.OK, made.stderr
    first, second = made.stdout.splitlines()
    assert first == "webhook listed is active"
    assert second.startswith("secret whsec_")
    assert second.split()[1] not in shown
    assert table[0].split()[:3] == ["WEBHOOK", "STATE", "EVENTS"]
    assert table[1].split()[:3] == ["listed", "active", "run-*"]
    assert URL in shown
    assert refused.exit_code == ExitCode.UNUSABLE
    assert gone.stdout == "webhook listed is deleted\n"
    assert "no webhooks yet" in rota("webhooks", "ls").stdout


def test_put_changes_only_what_is_given(rota: Command, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    new = rota("webhooks", "put", "changed")
    rota("webhooks", "put", "changed", "--to", URL, "--event", "run-*", "--format", "slack")
    off = rota("webhooks", "put", "changed", "--disabled", "--description", "for the team")
    view = document(rota("webhooks", "show", "changed", "--json"))
    secret = rota("webhooks", "put", "changed", "--secret-file", str(tmp_path / "secret"))
    rota("webhooks", "delete", "changed", "--yes")

    assert new.exit_code == ExitCode.UNUSABLE
    assert "--to" in new.stderr
    assert off.stdout == "webhook changed is off\n"
    assert (view["url"], view["events"], view["format"]) == (URL, ["run-*"], "slack")
    assert (view["description"], view["secret"]) == ("for the team", None)
    assert SECRET in secret.stdout


def test_a_test_that_does_not_arrive_fails_the_command(rota: Command) -> None:
    rota("webhooks", "put", "tested", "--to", "http://localhost:1/")
    tested = rota("webhooks", "test", "tested")
    rota("webhooks", "delete", "tested", "--yes")
    unknown = rota("webhooks", "test", "tested")

    assert tested.exit_code == ExitCode.FAILED
    assert "outbound_allow" in tested.stdout
    assert unknown.exit_code == ExitCode.FAILED
    assert "rota webhooks ls" in unknown.stderr


def test_an_address_that_is_not_public_is_refused(rota: Command) -> None:
    refused = rota("webhooks", "put", "private", "--to", "http://127.0.0.1:1/latest")

    assert refused.exit_code == ExitCode.UNUSABLE
    assert "not public" in refused.stderr


def test_the_tasks_of_a_queue_are_pushed_and_pushed_no_more(rota: Command, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("Authorization: Bearer hidden\n\nX-Key: k\n")
    new = rota("queues", "push", "fn", "--concurrency", "3")
    headers = str(tmp_path / "headers")
    made = rota("queues", "push", "fn", "--to", URL, "--timeout", "5s", "--header-file", headers)
    changed = document(rota("queues", "push", "fn", "--concurrency", "3", "--json"))
    shown = rota("queues", "push", "fn")
    off = rota("queues", "push", "fn", "--off")
    unknown = rota("queues", "push", "fn")

    assert new.exit_code == ExitCode.UNUSABLE
    assert "--to" in new.stderr
    assert "secret" in made.stdout
    assert (changed["url"], changed["timeout_ms"], changed["concurrency"]) == (URL, 5_000, 3)
    assert changed["headers"] == ["Authorization", "X-Key"]
    assert "hidden" not in shown.stdout
    assert "whsec_" not in shown.stdout
    assert off.stdout == "tasks of queue fn are no longer pushed\n"
    assert unknown.exit_code == ExitCode.FAILED
