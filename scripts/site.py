"""Build the documentation as a site: `make site`.

The pages are those of the repository, written to be read there. This script copies them into
site-source with links that fit the site, adds a page for each part of the SDK's interface and
for each source file that a page links to, takes the menu from docs/README.md, and runs mkdocs. A
link that leads nowhere fails the build.

    .venv/bin/python scripts/site.py             # into build/site/VERSION
    .venv/bin/python scripts/site.py --serve     # and serve it on 127.0.0.1:8000

build/site can be served as it is, from any path of any host. Versions built before stay beside the
new one, and the menu of versions lists them.
"""

import argparse
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import rota

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
SERVE_AT = ("127.0.0.1", 8000)

# Pages of the repository that lie outside docs/, and where they are on the site.
RENAMED = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "docs/design/README.md": "design/index.md",
}
# The public names of the SDK by page. A test compares them with `rota.__all__`.
SDK_PAGES = {
    "Apps and tasks": "Rota Task Batch TaskContext current",
    "Options of tasks": "Backoff Concurrency Rate Unique Debounce",
    "Results": "TaskHandle PendingHandle TaskState TaskError TaskFailed TaskCancelled",
    "Outcomes of handlers": "Retry Snooze Discard RateLimited Cancelled",
    "Groups and chains": "GroupHandle ChainHandle MemberOutcome GroupFailed",
    "Workflows and runs": "Workflow RunHandle RunFailed RunCancelled replay",
    "Durable functions": "Run BlockingRun current_run CodeWorkflow FunctionHandle ReceivedMessage "
    "AmbiguousStep ApprovalRejected OperationFailed StepOutcomeUnknown",
    "Values and locks": "Memory Lock LockNotAcquired LockLost",
    "Workers": "Worker StopReason",
    "Shards": "ShardWorker HeldShard",
    "Middleware": "Middleware EnqueuedCall HandlerCall StepExecution",
    "Client": "Client",
    "Errors": "RotaError Invalid InvalidWorkflow NotFound Overloaded StaleEpoch Unavailable "
    "UniqueConflict VersionConflict",
}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "bash"}

_FENCE = re.compile(r"\s*(```+|~~~+)")
_LINK = re.compile(r"(\]\()(?!\w+:|#|//)([^)\s]+)(\))")
_MENU_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)\)")
_LIST_ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the documentation as a site.")
    parser.add_argument("--output", type=Path, default=BUILD, help="the folder to build in")
    parser.add_argument("--serve", action="store_true", help="serve the site after the build")
    arguments = parser.parse_args()
    version = project_version()
    source, site = arguments.output / "site-source", arguments.output / "site"
    stage(source / "docs")
    build(source, site / version, version)
    write_versions(site, version)
    print(f"built {site / version}")
    if arguments.serve:
        serve(site)


def project_version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


# The pages


def stage(docs: Path) -> None:
    """Write every page of the site into a folder."""
    shutil.rmtree(docs, ignore_errors=True)
    sources: set[str] = set()
    for page in repository_pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        write(docs / site_path(page), site_page(text, page, sources))
    for name in sorted(sources):
        write(docs / site_path(name), source_page(name))
    for title, names in SDK_PAGES.items():
        write(docs / sdk_path(title), sdk_page(title, names.split()))
    shutil.copytree(ROOT / "docs" / "pictures", docs / "pictures")
    shutil.copy(ROOT / "src/rota/dashboard/static/icon.svg", docs / "icon.svg")


def repository_pages() -> list[str]:
    pages = [name for name in RENAMED if not name.startswith("docs/")]
    folders = (ROOT / "docs", ROOT / "examples")
    found = (path for folder in folders for path in sorted(folder.rglob("*.md")))
    return [*pages, *(path.relative_to(ROOT).as_posix() for path in found)]


def site_path(name: str) -> str:
    """Where a file of the repository is on the site."""
    if name in RENAMED:
        return RENAMED[name]
    if name.endswith(".md") or name.startswith("docs/pictures/"):
        return name.removeprefix("docs/")
    return f"sources/{name}.md"


def site_page(text: str, page: str, sources: set[str]) -> str:
    """A page with the links of the site. Source files that it links to are added to `sources`."""

    def rewrite(link: re.Match[str]) -> str:
        target, mark, anchor = link[2].partition("#")
        name = os.path.normpath(PurePosixPath(page).parent / target)
        if (ROOT / name).is_dir():
            name = f"{name}/README.md"
        if not (ROOT / name).is_file():
            sys.exit(f"{page}: the link to {link[2]} leads nowhere")
        if site_path(name).startswith("sources/"):
            sources.add(name)
        near = os.path.relpath(site_path(name), PurePosixPath(site_path(page)).parent)
        return f"{link[1]}{near}{mark}{anchor}{link[3]}"

    lines = [
        line if in_code else _LINK.sub(rewrite, line) for line, in_code in lines_with_code(text)
    ]
    return "\n".join(separate_lists(lines)) + "\n"


def lines_with_code(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it belongs to a block of code."""
    fence: str | None = None
    for line in text.splitlines():
        mark = _FENCE.match(line)
        yield line, fence is not None or mark is not None
        if mark and fence is None:
            fence = mark[1]
        elif mark and fence is not None and mark[1].startswith(fence):
            fence = None


def separate_lists(lines: list[str]) -> Iterator[str]:
    """Put an empty line before each list: GitHub needs none after a paragraph, mkdocs does."""
    before = ""
    for line, in_code in lines_with_code("\n".join(lines)):
        starts_list = bool(_LIST_ITEM.match(line)) and not in_code
        in_paragraph = before.strip() and not _LIST_ITEM.match(before) and before[0] not in " #|"
        if starts_list and not line.startswith(" ") and in_paragraph:
            yield ""
        yield line
        before = line


def source_page(name: str) -> str:
    path = ROOT / name
    text = path.read_text(encoding="utf-8").rstrip()
    return f"# {path.name}\n\n`{name}`\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}\n````\n"


def sdk_path(title: str) -> str:
    return f"sdk/{title.lower().replace(' ', '-')}.md"


def sdk_page(title: str, names: list[str]) -> str:
    """A page whose text mkdocstrings takes from the signatures and docstrings of the code."""
    blocks = [sdk_block(name) for name in names]
    return "\n\n".join([f"# {title}", f"`from rota import {', '.join(names)}`", *blocks]) + "\n"


def sdk_block(name: str) -> str:
    found = getattr(rota, name)
    if not isinstance(found, type) or found.__name__ == name:
        return f"::: {found.__module__}.{name}"
    # A class with another name in the code: `Run = …` alone would be all that is shown. Its
    # signature would have that other name; its fields and methods are listed.
    path = f"{found.__module__}.{found.__qualname__}"
    options = {"heading": name, "toc_label": name, "merge_init_into_class": False}
    return f"::: {path}\n    options: {json.dumps(options)}"  # JSON is YAML


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# The menu


def menu(docs: Path) -> list[dict[str, Any]]:
    """The entries of the menu: the sections of docs/README.md, the SDK, and the project."""
    sections: list[dict[str, Any]] = [{"Home": ["index.md", "contents.md"]}]
    for title, links in index_sections("docs/README.md"):
        entries = [{text: path} for text, path in links if path.startswith(section_folders(title))]
        if title == "Reference":
            sections.append({"SDK": [{name: sdk_path(name)} for name in SDK_PAGES]})
        if entries:
            sections.append({title: entries})
    decisions = sorted((docs / "design").glob("*.md"))
    pages = [path.name for path in decisions if path.name != "index.md"]
    project = ["architecture.md", "security.md", "contributing.md", "changelog.md"]
    sections.append({"Design": ["design/index.md", *(f"design/{name}" for name in pages)]})
    sections.append({"Project": [*project, {"Examples": example_pages(docs)}]})
    return sections


def index_sections(index: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The headings of an index page with the pages that each one lists."""
    folder = PurePosixPath(index).parent
    text = (ROOT / index).read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        links = _MENU_LINK.findall(body)
        yield title, [(text, site_path(os.path.normpath(folder / path))) for text, path in links]


def section_folders(title: str) -> tuple[str, ...]:
    """The pages of the site that belong into a section: the rest have a section of their own."""
    folders = {"Tutorial": ("tutorial",), "Reference": ("reference/", "glossary.md")}
    return folders.get(title, (f"{title.lower()}/",))


def example_pages(docs: Path) -> list[str]:
    pages = [*docs.glob("examples/**/*.md"), *docs.glob("sources/**/*.md")]
    return sorted(path.relative_to(docs).as_posix() for path in pages)


# The build


def build(source: Path, target: Path, version: str) -> None:
    """Run mkdocs. Warnings, such as an anchor that does not exist, are errors."""
    shutil.rmtree(target, ignore_errors=True)
    configuration = {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(source / "docs"),
        "site_dir": str(target),
        "nav": menu(source / "docs"),
        "copyright": f"Rota {version}",
    }
    path = source / "mkdocs.yml"
    path.write_text(json.dumps(configuration, indent=2), encoding="utf-8")  # JSON is YAML
    # Not --quiet: it would leave out the warnings before --strict counts them.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}\nthe site was not built: mkdocs names the reasons above")


def write_versions(site: Path, newest: str) -> None:
    """Write the list of versions that the menu shows, and send visitors of / to the newest."""
    built = sorted((path.parent.name for path in site.glob("*/index.html")), key=version_key)
    versions = [
        {"version": one, "title": one, "aliases": ["latest"] if one == newest else []}
        for one in reversed(built)
    ]
    (site / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    (site / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><title>Rota</title>'
        f'<meta http-equiv="refresh" content="0; url={newest}/">'
        f'<a href="{newest}/">Documentation of Rota {newest}</a>\n',
        encoding="utf-8",
    )


def version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def serve(site: Path) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    host, port = SERVE_AT
    with http.server.ThreadingHTTPServer(SERVE_AT, handler) as server:
        print(f"serving on http://{host}:{port}/ (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
