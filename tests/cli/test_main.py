"""Is the command line whole? Everything has a help text, and `--help` loads nothing heavy."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator

import apsw
import click
import msgspec
import pytest
import zmq
from click.testing import CliRunner

import rota
from rota.cli.commands.locks import locks
from rota.cli.main import COMMANDS, cli
from rota.cli.render.output import EXIT_CODES, ExitCode

HEAVY = ("apsw", "asyncio", "rich", "rota.node", "rota.store", "structlog", "httptools")


def every_command(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path) or "rota", command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from every_command(below, (*path, name))


def test_every_command_and_every_option_says_what_it_does() -> None:
    silent = [path for path, command in every_command() if not command.help]
    silent += [
        f"{path} {parameter.opts[0]}"
        for path, command in every_command()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.help
    ]

    assert silent == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_in_the_list_is_the_first_line_of_the_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name].summary
    assert command.name == name


def test_no_summary_in_the_help_of_a_group_is_cut() -> None:
    groups = [path for path, command in every_command() if isinstance(command, click.Group)]
    runner = CliRunner()

    for path in groups:
        words = [] if path == "rota" else path.split()
        listed = runner.invoke(cli, [*words, "--help"]).output.partition("Commands:")[2]

        assert "..." not in listed, path
        assert listed.strip(), path


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from rota.cli.main import cli\n"
        "try:\n    cli(['--help'])\n"
        f"finally:\n    sys.stderr.write(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert "Commands:" in ended.stdout
    assert ended.stderr == ""


def test_every_exit_code_is_documented() -> None:
    assert set(EXIT_CODES) == set(ExitCode)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--nonsense"], "No such option '--nonsense'"),
        (["nonsense"], "No such command 'nonsense'"),
        (["tasks", "ls", "--state", "odd"], "'odd' is not one of"),
        (["tasks", "cancel"], "name the tasks to cancel"),
        (["submit"], "name a task"),
        (["submit", "add", "--payload", "{"], "--payload is not JSON"),
        (["submit", "add", "--priority", "9999999"], "the task is not valid"),
        (["tasks", "ls", "--url", "ftp://x"], "URL starts with http://"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], text: str) -> None:
    ended = CliRunner().invoke(cli, arguments)

    assert ended.exit_code == ExitCode.UNUSABLE
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: ")
    assert text in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("group", [(), ("tasks",), ("workflows",)])
def test_a_group_without_a_command_prints_its_help(group: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(cli, group)

    assert ended.exit_code == ExitCode.UNUSABLE
    assert ended.stderr.startswith(f"Usage: {' '.join(('cli', *group))} [OPTIONS]")
    assert "Commands:\n" in ended.stderr


def test_the_version_is_one_line() -> None:
    ended = CliRunner().invoke(cli, ["--version"])

    assert (ended.exit_code, ended.stdout) == (0, f"rota {rota.__version__}\n")


@pytest.mark.parametrize("arguments", [["--version", "--json"], ["--json", "--version"]])
def test_the_version_as_json_has_what_rota_stands_on(arguments: list[str]) -> None:
    ended = CliRunner().invoke(cli, arguments)

    assert ended.exit_code == 0
    said = json.loads(ended.stdout)
    assert said["rota"] == rota.__version__
    assert said["python"] == platform.python_version()
    assert said["sqlite"] == apsw.sqlite_lib_version()
    assert said["zeromq"] == zmq.zmq_version()
    assert said["packages"]["msgspec"] == msgspec.__version__
    assert "pytest" not in said["packages"]


def test_json_alone_is_refused() -> None:
    ended = CliRunner().invoke(cli, ["--json", "tasks", "ls"])

    assert ended.exit_code == ExitCode.UNUSABLE
    assert "--json goes with --version, or behind a command" in ended.stderr


def test_an_unreachable_coordinator_is_one_line_and_exit_code_2() -> None:
    ended = CliRunner().invoke(cli, ["tasks", "ls", "--url", "http://127.0.0.1:1"])

    assert ended.exit_code == ExitCode.UNUSABLE
    assert "cannot be reached" in ended.stderr
    assert ended.stderr.endswith("(unavailable)\n")


def test_a_command_without_an_address_says_how_to_start_a_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ROTA_URL", raising=False)
    listed = locks.commands["ls"]
    (url,) = (one for one in listed.params if one.name == "url")
    monkeypatch.setattr(url, "default", "http://127.0.0.1:1")

    by_default = CliRunner().invoke(cli, ["locks", "ls"])
    by_address = CliRunner().invoke(cli, ["locks", "ls", "--url", "http://127.0.0.1:1"])

    assert by_default.exit_code == ExitCode.UNUSABLE
    assert "start one with `rota up` or `rota dev MODULE:APP`" in by_default.stderr
    assert by_address.exit_code == ExitCode.UNUSABLE
    assert "start one" not in by_address.stderr
