import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.cli.apps import chosen_app, load_app
from rota.cli.render.output import Refusal
from rota.sdk.app.app import Rota


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory with modules of apps."""
    (tmp_path / "one_app.py").write_text("from rota import Rota\napp = Rota()\nother = 1\n")
    (tmp_path / "two_apps.py").write_text("from rota import Rota\na = Rota()\nb = Rota()\n")
    (tmp_path / "no_apps.py").write_text("class holder:\n    pass\n")
    (tmp_path / "held_app.py").write_text(
        "from rota import Rota\nclass holder:\n    app = Rota()\n"
    )
    (tmp_path / "broken_app.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "raising_app.py").write_text("raise ValueError('odd')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "reference", ["one_app:app", "one_app", "two_apps:b", "held_app:holder.app"]
)
def test_an_app_is_found_in_the_working_directory(reference: str) -> None:
    assert isinstance(load_app(reference), Rota)


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("nowhere:app", "there is no module 'nowhere'"),
        ("nowhere.deep:app", "there is no module 'nowhere.deep'"),
        ("one_app.py:app", "named like one_app:app"),
        ("one_app:missing", "it has app"),
        ("one_app:other", "is a int, not a Rota app"),
        ("two_apps", "it has a, b"),
        ("no_apps", "it has none"),
        ("", "named MODULE:APP"),
        (".relative:app", "named MODULE:APP"),
    ],
)
def test_an_app_that_cannot_be_meant_is_told(reference: str, text: str) -> None:
    with pytest.raises(Refusal) as refused:
        load_app(reference)

    assert text in refused.value.message
    assert refused.value.code == "app_not_found"


@pytest.mark.parametrize("name", ["broken_app", "raising_app"])
def test_an_app_that_does_not_import_is_shown_where(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Refusal) as refused:
        load_app(f"{name}:app")

    assert refused.value.code == "app_broken"
    assert f"{name}.py" in capsys.readouterr().err


def test_an_app_is_named_once() -> None:
    assert isinstance(chosen_app("one_app", None), Rota)
    assert isinstance(chosen_app(None, "one_app"), Rota)
    for pair in ((None, None), ("one_app", "one_app")):
        with pytest.raises(Exception, match="name one app"):
            chosen_app(*pair)
