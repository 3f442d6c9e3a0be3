import io
import logging
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import structlog

from rota import telemetry

SECRET = "rota_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


@pytest.fixture(autouse=True)
def the_log_is_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("websockets").setLevel(logging.NOTSET)
    structlog.reset_defaults()


def logged(**fields: Any) -> dict[str, Any]:
    stream = io.StringIO()
    telemetry.set_up(log_format="json", stream=stream)
    structlog.get_logger("rota.test").info("happened", **fields)
    line: dict[str, Any] = msgspec.json.decode(stream.getvalue())
    return line


def test_off_a_terminal_a_line_is_one_json_document() -> None:
    stream = io.StringIO()
    telemetry.set_up(stream=stream)

    structlog.get_logger("rota.test").warning("worker gone", worker_id="w1")

    line = msgspec.json.decode(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "worker gone",
        "level": "warning",
        "logger": "rota.test",
        "worker_id": "w1",
    }


def test_for_people_the_name_of_an_event_is_words_and_for_machines_it_stays() -> None:
    shown = {}
    formats: tuple[telemetry.LogFormat, ...] = ("text", "json")
    for log_format in formats:
        stream = io.StringIO()
        telemetry.set_up(log_format=log_format, stream=stream)
        structlog.get_logger("rota.test").info("worker_removed", worker_id="old_worker")
        shown[log_format] = stream.getvalue()

    assert "worker removed" in shown["text"]
    assert "old_worker" in shown["text"]
    assert '"event": "worker_removed"' in shown["json"]


def test_for_people_a_line_has_local_time_and_its_fields_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "UTC-2")  # two hours ahead, as POSIX has it
    time.tzset()
    stream = io.StringIO()
    telemetry.set_up(log_format="text", stream=stream)
    moment = "2026-07-01T10:00:00.123456Z"

    structlog.get_logger("rota.test").info("task_started", timestamp=moment, task="b", attempt="a")
    monkeypatch.undo()
    time.tzset()

    assert stream.getvalue().startswith("2026-07-01 12:00:00.123 [info")
    assert stream.getvalue().endswith("task=b attempt=a\n")


def test_lines_of_the_standard_library_take_the_same_road() -> None:
    stream = io.StringIO()
    telemetry.set_up(log_format="json", stream=stream)

    logging.getLogger("websockets.server").error("cannot %s", "bind")

    line = msgspec.json.decode(stream.getvalue())
    assert (line["event"], line["logger"], line["level"]) == (
        "cannot bind",
        "websockets.server",
        "error",
    )


def test_the_level_decides_what_is_said() -> None:
    stream = io.StringIO()
    telemetry.set_up(level="warning", log_format="text", stream=stream)

    structlog.get_logger("rota.test").info("small talk")
    logging.getLogger("other").info("small talk")

    assert stream.getvalue() == ""


def test_set_up_twice_says_everything_once() -> None:
    telemetry.set_up(log_format="text", stream=io.StringIO())

    assert "happened" in logged()["event"]


@pytest.mark.parametrize("name", ["token", "ROTA_TOKEN", "password", "Authorization", "api_secret"])
def test_a_value_under_a_telling_name_is_covered(name: str) -> None:
    assert logged(**{name: "abc"})[name] == telemetry.COVERED


def test_the_id_of_a_token_is_no_secret() -> None:
    assert logged(token_id="k1")["token_id"] == "k1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"refused {SECRET}", "refused [covered]"),
        ("got Authorization: Bearer abc.def", "got Authorization: Bearer [covered]"),
        ("at postgresql://rota:pass@host/db", "at postgresql://rota:[covered]@host/db"),
        ("at http://127.0.0.1:7070/x@y", "at http://127.0.0.1:7070/x@y"),
    ],
)
def test_a_secret_in_a_text_is_covered(text: str, shown: str) -> None:
    assert logged(detail=text)["detail"] == shown


def test_a_secret_deep_in_a_value_is_covered() -> None:
    line = logged(request={"headers": [{"authorization": "abc"}, ["x", SECRET]]})

    assert line["request"] == {"headers": [{"authorization": "[covered]"}, ["x", "[covered]"]]}


def test_a_secret_in_a_traceback_is_covered() -> None:
    stream = io.StringIO()
    telemetry.set_up(log_format="text", stream=stream)

    try:
        int(SECRET)
    except ValueError:
        structlog.get_logger("rota.test").exception("went wrong")

    assert "ValueError: invalid literal" in stream.getvalue()
    assert SECRET not in stream.getvalue()
