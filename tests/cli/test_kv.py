import json
from pathlib import Path

import pytest

from rota.cli.render.output import ExitCode
from tests.cli.conftest import Command, document


def test_a_value_is_put_got_and_deleted(rota: Command) -> None:
    kept = rota("memory", "put", "a/k", '{"n": [1, 2]}')
    version = document(rota("memory", "get", "a/k", "--json"))["version"]

    assert kept.stdout == f"stored a/k, version {version}\n"
    assert rota("memory", "get", "a/k").stdout == '{"n": [1, 2]}\n'
    assert rota("memory", "delete", "a/k").stdout == f"deleted a/k, version {version}\n"
    gone = rota("memory", "get", "a/k")
    assert gone.exit_code == rota("memory", "delete", "a/k").exit_code == ExitCode.FAILED
    assert (
        gone.stderr
        == "error: key 'a/k' not found; it has no value, or its value has expired (key_not_found)\n"
    )


def test_a_value_comes_from_a_file_or_from_stdin(rota: Command, tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text('"from a file"')

    rota("memory", "put", "file", f"@{tmp_path}/v.json")
    rota("memory", "put", "stdin", "-", stdin='"from stdin"')

    assert rota("memory", "get", "file").stdout == '"from a file"\n'
    assert rota("memory", "get", "stdin").stdout == '"from stdin"\n'


def test_what_is_not_json_is_refused_before_anything_is_sent(rota: Command) -> None:
    ended = rota("memory", "put", "k", "{nonsense")

    assert ended.exit_code == ExitCode.UNUSABLE
    assert "VALUE is not JSON" in ended.stderr


def test_a_value_is_kept_for_a_time(rota: Command) -> None:
    kept = document(rota("memory", "put", "mortal", "1", "--ttl-ms", "90000", "--json"))

    assert kept["expires_at_ms"] == kept["updated_at_ms"] + 90_000
    assert "expires in 1 min" in rota("memory", "put", "mortal", "1", "--ttl", "90s").stdout


def test_a_change_on_condition_is_refused_when_the_value_has_changed(rota: Command) -> None:
    version = document(rota("memory", "put", "c", "1", "--if-version", "0", "--json"))["version"]

    for late in (
        rota("memory", "put", "c", "2", "--if-version", "0"),
        rota("memory", "delete", "c", "--if-version", str(version + 1)),
    ):
        assert late.exit_code == ExitCode.FAILED
        assert "(version_conflict)" in late.stderr
    assert rota("memory", "delete", "c", "--if-version", str(version)).exit_code == ExitCode.OK


def test_values_are_listed_by_prefix_or_pattern(rota: Command) -> None:
    for key in ("ls/a", "ls/b", "ls/c"):
        rota("memory", "put", key, json.dumps({"text": "x" * 100}))

    lines = rota("memory", "ls", "--prefix", "ls/").stdout.splitlines()
    found = document(rota("memory", "ls", "--pattern", "ls/[bc]", "--json"))["items"]
    part = rota("memory", "ls", "--prefix", "ls/", "--limit", "2")

    assert lines[0].split() == ["KEY", "VERSION", "UPDATED", "EXPIRES", "VALUE"]
    assert [line.split()[0] for line in lines[1:]] == ["ls/a", "ls/b", "ls/c"]
    assert all(line.endswith("…") for line in lines[1:])
    assert [item["key"] for item in found] == ["ls/b", "ls/c"]
    assert part.stderr == "there is more: continue with --cursor ls/b\n"
    assert rota("memory", "ls", "--prefix", "nothing").stdout == "no values\n"


@pytest.mark.parametrize("verb", ["ls", "get", "put", "delete"])
def test_every_command_says_what_it_does(rota: Command, verb: str) -> None:
    assert "Usage: " in rota("memory", verb, "--help").stdout
