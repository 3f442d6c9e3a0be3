"""Exported journals, replayed offline."""

import json
from pathlib import Path

import msgspec
import pytest

import rota
from rota import Rota
from rota.errors import Invalid
from rota.testing import TestCoordinator
from tests.sdk.test_workflows import PANEL, app

ASKED = {"question": "To be", "judges": ["a", "b", "c"]}


@pytest.fixture(scope="module")
def journal() -> bytes:
    """The journal of a run that is over, as it is exported."""
    with TestCoordinator() as coordinator:
        coordinator.attach(app)
        run = app.workflow(PANEL).start(ASKED)
        run.result()
        return msgspec.json.encode({"items": run.journal()})


def test_the_same_definition_decides_the_same(journal: bytes) -> None:
    assert rota.replay(journal, PANEL) == []


def test_a_journal_is_taken_in_any_form(journal: bytes, tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    path.write_bytes(journal)
    reordered = json.dumps(json.loads(journal), sort_keys=True, indent=1)

    for form in (path, journal.decode(), reordered, json.loads(journal)["items"]):
        assert rota.replay(form, Rota("http://127.0.0.1:1").workflow(PANEL)) == []


def test_a_changed_definition_shows_where_it_would_differ(journal: bytes) -> None:
    differences = rota.replay(journal, PANEL.replace("m_of_n: 2", "m_of_n: 1"))

    first = differences[0]
    assert (first.number, type(first.event).__name__) == (3, "TaskEnded")
    assert first.words == "in addition: state.verdicts is written"
    assert len(first.decided) > len(first.stored) == first.place


def test_a_changed_value_is_told_with_both(journal: bytes) -> None:
    (first,) = rota.replay(journal, PANEL.replace("draft: state.draft", "draft: input.question"))

    assert first.number == 2
    assert first.words == (
        'task judge is queued for judge[0]: payload is {"by":"a","draft":"To be"}, '
        'instead of {"by":"a","draft":"To be!"}'
    )


def test_one_is_not_true_and_not_a_float(journal: bytes) -> None:
    items = json.loads(journal)["items"]
    created, changed = items[0]["decisions"][:2]
    created["number"], changed["number"] = 1.0, True

    (difference,) = rota.replay(items, PANEL)

    assert (difference.number, difference.place) == (1, 0)
    assert difference.stored[1]["number"] is True


def test_a_tampered_journal_is_found(journal: bytes) -> None:
    items = json.loads(journal)["items"]
    del items[1]["decisions"][-1]

    (difference,) = rota.replay(items, PANEL)

    assert difference.number == 2
    assert difference.words.startswith("in addition: ")


def test_a_journal_of_something_else_does_not_raise_what_nobody_expects(journal: bytes) -> None:
    other = "name: other\ninitial_node: a\nnodes:\n  a: {task: ask}\n"

    assert rota.replay(journal, other)[0].number == 1
    for broken in ("[", "{}", '[{"number": 1}]', Path("/nowhere/journal.json")):
        with pytest.raises(Invalid):
            rota.replay(broken, PANEL)
