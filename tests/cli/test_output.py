import msgspec
import pytest

from rota.cli.render import output
from rota.cli.render.output import (
    STATE_STYLES,
    ExitCode,
    Facts,
    Refusal,
    Table,
    refusal_of,
    show,
    visible,
)
from rota.core.tasks.model import TaskState
from rota.core.workers.model import Health, WorkerState
from rota.errors import Invalid, StoreLocked, TaskNotFound

TABLE = Table(("task", "state"), [("a1", "queued"), ("b22", None)])


def test_a_table_in_a_pipe_is_aligned_text_with_nothing_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(None, as_json=False, render=lambda _: TABLE)

    assert capsys.readouterr().out == "TASK  STATE\na1    queued\nb22   -\n"


def test_a_table_on_a_terminal_is_drawn_with_the_colour_of_each_state(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")

    show(None, as_json=False, render=lambda _: TABLE)

    assert "\x1b[33mqueued" in capsys.readouterr().out


def test_a_narrow_terminal_cuts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    monkeypatch.setenv("COLUMNS", "40")
    row = ("343c453b8f000000", "a name that is longer than the screen is wide")

    show(None, as_json=False, render=lambda _: Table(("task", "name"), [row]))

    said = capsys.readouterr().out
    assert row[0] in said
    assert "".join(said.split()).endswith("".join(row[1].split()))


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show(None, as_json=False, render=lambda _: Table(("task",), [], empty="no tasks"))

    assert capsys.readouterr().out == "no tasks\n"


def test_facts_leave_out_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    show(None, as_json=False, render=lambda _: Facts([("id", "a1"), ("worker", None), ("at", 1)]))

    assert capsys.readouterr().out == "id  a1\nat  1\n"


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    show(Invalid("unused").facts | {"a": [1]}, as_json=True, render=lambda _: "never")

    assert msgspec.json.decode(capsys.readouterr().out) == {"a": [1]}


def test_a_name_cannot_write_to_the_terminal() -> None:
    assert visible("\x1b[2J\u202eevil\n") == "\\x1b[2J\\u202eevil\n"


def test_markup_in_a_name_is_only_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)

    show(None, as_json=False, render=lambda _: Table(("task",), [("[red]x[/red]",)]))

    assert "[red]x[/red]" in capsys.readouterr().out


def test_every_state_has_a_colour_of_its_own_kind() -> None:
    for states in (TaskState, Health, WorkerState):
        styles = [STATE_STYLES[state.value] for state in states]

        assert len(set(styles)) == len(styles)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TaskNotFound("a1"), ExitCode.FAILED),
        (Invalid("no"), ExitCode.UNUSABLE),
        (StoreLocked("no"), ExitCode.UNUSABLE),
    ],
)
def test_the_kind_of_an_error_decides_the_exit_code(error: Invalid, code: ExitCode) -> None:
    assert refusal_of(error).exits_with == code


def test_an_error_is_one_line_whatever_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    Refusal("two\nlines\x07", code="odd").show()

    assert capsys.readouterr().err == "error: two lines\\x07 (odd)\n"
