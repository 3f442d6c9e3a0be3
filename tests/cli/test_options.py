from typing import Any

import click
import pytest
from click.testing import CliRunner

from rota import settings
from rota.cli.options import load_settings, settings_flags
from rota.settings import Settings


@click.command()
@settings_flags()
def probe(**flags: Any) -> None:
    """Say which settings the flags lead to."""
    loaded = load_settings(flags)
    click.echo(f"{loaded.host} {loaded.port} {loaded.insecure} {loaded.history_keep_ms}")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_setting_is_a_flag_with_its_description_default_and_variable() -> None:
    described = {option.name: option for option in probe.params if isinstance(option, click.Option)}

    assert set(described) == set(settings.field_names())
    for name, option in described.items():
        shown = option.get_help_extra(click.Context(probe))
        assert option.help
        assert settings.environment_name(name) in shown["envvars"]
        default = getattr(Settings(), name)
        assert default is None or str(default).lower() in shown["default"].lower()


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"ROTA_HOST": "::1", "ROTA_PORT": "1", "PORT": "2"}

    ended = CliRunner().invoke(probe, ["--port", "3", "--history-keep-ms", "5"], env=environment)

    assert ended.output == "::1 3 False 5\n"


def test_the_plain_variable_port_is_honoured() -> None:
    ended = CliRunner().invoke(probe, [], env={"PORT": "8080"})

    assert ended.output == "127.0.0.1 8080 False 604800000\n"


def test_a_switch_can_be_turned_off_again_by_a_flag() -> None:
    ended = CliRunner().invoke(probe, ["--no-insecure"], env={"ROTA_INSECURE": "true"})

    assert "False" in ended.output


@pytest.mark.parametrize(
    "flag", [["--port", "65536"], ["--strategy", "odd"], ["--degraded-after", "0"]]
)
def test_a_value_that_does_not_fit_is_refused(flag: list[str]) -> None:
    ended = CliRunner().invoke(probe, flag)

    assert ended.exit_code == 2
    assert flag[0] in ended.stderr


def test_the_help_of_a_setting_has_its_default_as_it_is_written() -> None:
    text = " ".join(CliRunner().invoke(probe, ["--help"]).stdout.split())

    assert "env var: ROTA_HOST; default: 127.0.0.1]" in text
    assert "ROTA_OUTBOUND_ALLOW; default: none]" in text


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("ROTA_PORT", "tcp://10.0.0.1:7070", "an integer from 0 to 65535"),
        ("PORT", "-1", "an integer from 0 to 65535"),
        ("ROTA_STRATEGY", "odd", "one of least-loaded, power-of-two, round-robin, weighted"),
    ],
)
def test_a_bad_value_of_a_variable_is_shown_with_its_name_and_what_is_allowed(
    variable: str, text: str, allowed: str
) -> None:
    ended = CliRunner().invoke(probe, [], env={variable: text})

    assert ended.exit_code == 2
    expected = f"{variable} in the environment: {text!r} is not allowed; give {allowed}"
    assert expected in " ".join(ended.stderr.split())
