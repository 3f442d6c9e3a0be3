import re
from pathlib import Path
from typing import Any

import pytest

from rota.errors import Invalid
from rota.settings import Settings, allowed_values, environment_name, field_names, load


def pyproject(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_without_any_source_everything_has_its_default(tmp_path: Path) -> None:
    assert load({}, {}, folder=tmp_path) == Settings()


@pytest.mark.parametrize(
    ("flags", "environment", "file", "expected"),
    [
        ({"port": 1}, {"ROTA_PORT": "2", "PORT": "3"}, "port = 4", 1),
        ({"port": None}, {"ROTA_PORT": "2", "PORT": "3"}, "port = 4", 2),
        ({}, {"PORT": "3"}, "port = 4", 3),
        ({}, {}, "port = 4", 4),
        ({}, {"ROTA_PORT": "", "PORT": ""}, "", 7070),
    ],
    ids=["flag", "environment", "PORT", "pyproject", "default"],
)
def test_a_flag_goes_before_the_environment_before_pyproject_before_the_default(
    tmp_path: Path,
    flags: dict[str, Any],
    environment: dict[str, str],
    file: str,
    expected: int,
) -> None:
    folder = pyproject(tmp_path, f"[tool.rota]\n{file}\n")

    assert load(flags, environment, folder=folder).port == expected


def test_sources_add_up_field_by_field(tmp_path: Path) -> None:
    folder = pyproject(tmp_path, '[tool.rota]\nlog-level = "debug"\nhost = "0.0.0.0"\n')

    settings = load({"port": 0}, {"ROTA_HOST": "::1", "ROTA_INSECURE": "true"}, folder=folder)

    assert settings == Settings(port=0, host="::1", log_level="debug", insecure=True)


@pytest.mark.parametrize("field", field_names())
def test_every_setting_has_its_variable(field: str, tmp_path: Path) -> None:
    default = getattr(Settings(), field)
    text = {True: "true", False: "false", None: ""}.get(default, str(default))

    settings = load({}, {environment_name(field): text}, folder=tmp_path)

    assert getattr(settings, field) == default


# --- variables that others have given some of these -----------------------------------------------


@pytest.mark.parametrize(
    ("environment", "field", "expected"),
    [
        ({"SHARD_COORDINATOR_BIND_HOST": "tcp://0.0.0.0"}, "zmq_host", "0.0.0.0"),
        ({"SHARD_COORDINATOR_BIND_HOST": "10.0.0.5"}, "zmq_host", "10.0.0.5"),
        ({"SHARD_COORDINATOR_BIND_PORT": "5556"}, "zmq_port", 5556),
        ({"HEARTBEAT_TIMEOUT_SECONDS": "20"}, "shard_lease_ms", 20_000),
        ({"HEARTBEAT_TIMEOUT_SECONDS": "1.5"}, "shard_lease_ms", 1_500),
        ({"HEARTBEAT_CHECK_INTERVAL_SECONDS": "5"}, "shard_sweep_ms", 500),
        ({"HEARTBEAT_CHECK_INTERVAL_SECONDS": "0.1"}, "shard_sweep_ms", 100),
        ({"SHARD_COORDINATOR_BIND_PORT": "5556", "ROTA_ZMQ_PORT": "1"}, "zmq_port", 1),
        ({"HEARTBEAT_TIMEOUT_SECONDS": "20", "ROTA_SHARD_LEASE_MS": "900"}, "shard_lease_ms", 900),
        ({"SHARD_COORDINATOR_BIND_HOST": "", "HEARTBEAT_TIMEOUT_SECONDS": ""}, "zmq_port", None),
    ],
)
def test_the_variables_of_other_shard_coordinators_are_understood_and_ours_go_before(
    tmp_path: Path, environment: dict[str, str], field: str, expected: object
) -> None:
    assert getattr(load({}, environment, folder=tmp_path), field) == expected


def test_a_time_may_be_written_with_its_unit(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.rota]\nhistory_keep_ms = "30d"\n')

    loaded = load({}, {"ROTA_EVENTS_KEEP_MS": "1h30m"}, folder=tmp_path)

    assert (loaded.history_keep_ms, loaded.events_keep_ms) == (30 * 86_400_000, 5_400_000)
    with pytest.raises(Invalid, match="from the environment is not valid"):
        load({}, {"ROTA_EVENTS_KEEP_MS": "soon"}, folder=tmp_path)


@pytest.mark.parametrize("text", ["soon", "nan", "inf", "0", "-5"])
def test_a_time_that_is_none_names_its_variable(tmp_path: Path, text: str) -> None:
    expected = (
        f"HEARTBEAT_TIMEOUT_SECONDS from the environment is not valid: {text!r}; give a number of "
        "seconds of at least 0.1"
    )

    with pytest.raises(Invalid, match=re.escape(expected)):
        load({}, {"HEARTBEAT_TIMEOUT_SECONDS": text}, folder=tmp_path)


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("ROTA_PORT", "tcp://10.0.0.1:7070", "an integer from 0 to 65535"),
        ("PORT", "x", "an integer from 0 to 65535"),
        ("SHARD_COORDINATOR_BIND_PORT", "-1", "an integer from 0 to 65535"),
        ("ROTA_MAX_WORKERS", "0", "an integer of at least 1"),
        ("ROTA_LOG_LEVEL", "loud", "one of debug, error, info, warning"),
        ("ROTA_INSECURE", "maybe", "true or false"),
        ("ROTA_DEGRADED_AFTER", "0", "a number above 0"),
        ("ROTA_ADVERTISE", "x" * 301, "a text of 1 to 300 characters"),
        (
            "ROTA_STUCK_AFTER_MS",
            "soon",
            "milliseconds of at least 1000, or a time such as 30s, 5m, 1h30m or 500ms",
        ),
    ],
)
def test_a_bad_value_of_the_environment_is_shown_with_its_variable_and_what_is_allowed(
    tmp_path: Path, variable: str, text: str, allowed: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        load({}, {variable: text}, folder=tmp_path)

    assert refusal.value.detail == (
        f"{variable} from the environment is not valid: {text!r}; give {allowed}"
    )


def test_every_setting_says_which_values_it_may_have() -> None:
    assert all(allowed_values(field) for field in field_names())


def test_the_error_of_a_store_does_not_show_its_password(tmp_path: Path) -> None:
    folder = pyproject(tmp_path, '[tool.rota]\nstore = ["postgresql://me:secret@db/rota"]\n')

    with pytest.raises(Invalid, match=r"store from pyproject\.toml") as refusal:
        load({}, {}, folder=folder)

    assert "secret" not in refusal.value.detail


def test_a_setting_that_does_not_exist_names_the_one_that_was_meant(tmp_path: Path) -> None:
    folder = pyproject(tmp_path, "[tool.rota]\nlog-levle = 1\n")

    with pytest.raises(Invalid, match=r"log-levle .* is not a setting; did you mean 'log_level'"):
        load({}, {}, folder=folder)


@pytest.mark.parametrize(
    ("flags", "environment", "file", "source"),
    [
        ({"port": 70_000}, {}, "", "the flags"),
        ({"port": "high"}, {}, "", "the flags"),
        ({}, {"ROTA_PORT": "-1"}, "", "the environment"),
        ({}, {"PORT": "x"}, "", "the environment"),
        ({}, {"ROTA_LOG_LEVEL": "loud"}, "", "the environment"),
        ({}, {}, "port = 70000", "pyproject.toml"),
        ({}, {}, 'port = "80"', "pyproject.toml"),
        ({}, {}, "colour = 1", "pyproject.toml"),
    ],
)
def test_a_value_that_does_not_fit_names_its_source(
    tmp_path: Path,
    flags: dict[str, Any],
    environment: dict[str, str],
    file: str,
    source: str,
) -> None:
    folder = pyproject(tmp_path, f"[tool.rota]\n{file}\n")

    with pytest.raises(Invalid, match=f"from {source}") as refusal:
        load(flags, environment, folder=folder)

    assert any(word in refusal.value.detail.lower() for word in ("port", "log_level", "colour"))


@pytest.mark.parametrize("text", ["[tool.rota", '[tool]\nrota = "no table"'])
def test_a_pyproject_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(Invalid, match=r"pyproject\.toml"):
        load({}, {}, folder=pyproject(tmp_path, text))


def test_a_pyproject_without_our_section_says_nothing(tmp_path: Path) -> None:
    folder = pyproject(tmp_path, '[project]\nname = "somebody else"\n')

    assert load({}, {}, folder=folder) == Settings()


def test_limits_that_depend_on_each_other_are_checked_once_all_sources_are_together(
    tmp_path: Path,
) -> None:
    folder = pyproject(tmp_path, "[tool.rota]\ndegraded_after = 5.0\n")

    settings = load({}, {"ROTA_UNHEALTHY_AFTER": "10"}, folder=folder)

    assert (settings.degraded_after, settings.unhealthy_after) == (5.0, 10.0)
    with pytest.raises(Invalid, match="degraded_after must not be above unhealthy_after"):
        load({}, {}, folder=folder)


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]  # frozen, which is the point


@pytest.mark.parametrize(
    ("given", "missing"), [("tls_cert", "tls_key"), ("tls_key", "tls_cert")], ids=str
)
def test_a_certificate_and_its_key_are_given_together_from_any_source(
    tmp_path: Path, given: str, missing: str
) -> None:
    folder = pyproject(tmp_path, f'[tool.rota]\n{given} = "one.pem"\n')

    with pytest.raises(Invalid, match=f"{missing} is missing") as refusal:
        load({}, {}, folder=folder)
    settings = load({}, {environment_name(missing): "two.pem"}, folder=folder)

    assert refusal.value.facts == {"field": missing}
    assert (getattr(settings, given), getattr(settings, missing)) == ("one.pem", "two.pem")
