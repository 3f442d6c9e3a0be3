"""The documentation as a site: every page and link, the SDK from its docstrings, the versions."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rota
from scripts import site
from tests.docs.pages import ROOT

TIMEOUT_S = 110
SCRIPT = ROOT / "scripts" / "site.py"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all versions, with one version from before."""
    folder = tmp_path_factory.mktemp("site")
    older = folder / "site" / "0.0.9"
    older.mkdir(parents=True)
    (older / "index.html").write_text("before", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, SCRIPT, "--output", folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_every_public_name_is_on_one_page_of_the_sdk() -> None:
    listed = [name for names in site.SDK_PAGES.values() for name in names.split()]

    assert sorted(listed) == sorted(set(rota.__all__) - {"__version__"})


@pytest.mark.slow
def test_every_page_of_the_repository_is_a_page_of_the_site(built: Path) -> None:
    version = built / site.project_version()
    missing = [
        page
        for page in site.repository_pages()
        if not (version / _address(site.site_path(page))).is_file()
    ]

    assert not missing


def _address(path: str) -> str:
    page = re.sub(r"(^|/)(README|index)\.md$", r"\1", path)
    return f"{page}index.html" if page.endswith("/") or not page else f"{page[:-3]}/index.html"


@pytest.mark.slow
def test_the_sdk_pages_have_signatures_and_docstrings(built: Path) -> None:
    page = built / site.project_version() / "sdk" / "apps-and-tasks" / "index.html"
    text = re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))

    assert "An app: tasks, and a connection to a coordinator." in text
    assert "enqueue_many" in text


@pytest.mark.slow
def test_a_class_with_another_name_in_the_code_is_shown_with_its_methods(built: Path) -> None:
    page = built / site.project_version() / "sdk" / "durable-functions" / "index.html"
    text = page.read_text(encoding="utf-8")
    words = re.sub(r"<[^>]+>", "", text)

    assert re.search(r"<h2[^>]*>\s*Run\s", text)
    assert "Run a function here, and record its result" in words
    assert "FunctionContext(" not in words


@pytest.mark.slow
def test_the_search_knows_the_text_of_the_pages(built: Path) -> None:
    index = built / site.project_version() / "search" / "search_index.json"
    documents = json.loads(index.read_text(encoding="utf-8"))["docs"]

    assert any("idempotency" in one["location"] for one in documents)


@pytest.mark.slow
def test_nothing_is_fetched_from_another_host(built: Path) -> None:
    fetched = re.compile(r"""(?:<(?:script|img|iframe)[^>]*\ssrc|<link[^>]*\shref)="?https?:""")
    pages = (built / site.project_version()).rglob("*.html")

    assert not [page for page in pages if fetched.search(page.read_text(encoding="utf-8"))]


@pytest.mark.slow
def test_earlier_versions_stay_and_the_newest_is_shown_first(built: Path) -> None:
    version = site.project_version()

    versions = json.loads((built / "versions.json").read_text(encoding="utf-8"))

    assert [(one["version"], one["aliases"]) for one in versions] == [
        (version, ["latest"]),
        ("0.0.9", []),
    ]
    assert f"url={version}/" in (built / "index.html").read_text(encoding="utf-8")


def test_a_link_to_nowhere_is_named() -> None:
    with pytest.raises(SystemExit, match=r"README\.md: the link to docs/nowhere\.md"):
        site.site_page("see [this](docs/nowhere.md)", "README.md", set())


def test_links_and_lists_are_those_of_the_site() -> None:
    sources: set[str] = set()
    page = "One:\n- [a](../SECURITY.md#x)\n- [b](../Makefile)\n\n```\n[c](nowhere)\n- d\n```\n"

    text = site.site_page(page, "docs/tutorial.md", sources)

    assert text == (
        "One:\n\n- [a](security.md#x)\n- [b](sources/Makefile.md)\n\n```\n[c](nowhere)\n- d\n```\n"
    )
    assert sources == {"Makefile"}


@pytest.mark.slow
def test_an_anchor_that_does_not_exist_fails_the_build(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built.parent / "site-source", tmp_path / "site-source")
    docs = tmp_path / "site-source" / "docs"
    for page in docs.rglob("*.md"):
        if page.parent.name != "design" and page.name != "index.md":
            page.write_text("# Nothing\n", encoding="utf-8")
    (docs / "glossary.md").write_text("[x](tutorial.md#no-such-heading)\n", encoding="utf-8")

    with pytest.raises(SystemExit, match="the site was not built"):
        site.build(tmp_path / "site-source", tmp_path / "site", "0")
