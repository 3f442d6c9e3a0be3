"""Django's own tests of its task framework, with Rota as the backend.

They come from the source distribution of Django 6.0, which pip fetches once into `.venv`; without
it the test is skipped. What Rota does differently is listed, each with its reason; a difference
that is no longer there fails the test, too.
"""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("django", reason="the extra `django` is not installed")

import django  # type: ignore[import-untyped]  # Django has no types

from tests.cli.processes import environment
from tests.docs.pages import ROOT
from tests.sdk.serving import Server

PUBLISHED = "6.0.10"
SHA256 = "6005d030df924f85088454c18bd35dcf082b058aa355ad3df520d8de9aef9f41"
FOLDER = Path(sys.prefix) / "django-tests"
MODULES = ("tasks.py", "test_dummy_backend.py", "test_immediate_backend.py", "test_tasks.py")
# pip asks the source for its metadata, too, in an environment with a wheel of setuptools.
FETCH = (
    *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
    *("--no-deps", "--no-binary", "django", "--ignore-requires-python", "--require-hashes"),
    *("--retries", "1", "--timeout", "15"),
)
FETCH_S = 120
STAND_INS = "tests.contrib.django.upstream_backends"
PATIENCE_S = 110
FEWEST_TESTS = 70
IS_BACKPORT = django.VERSION < (6, 0)
CLOCK = "`enqueued_at` of a result that is read is of the coordinator's clock, in milliseconds"
KEPT = "the tests change what the dummy backend keeps in memory; the coordinator keeps tasks"
SUPPORTED = "the immediate backend has no results and no `run_after`; this one has"
WORDING = "the error names the argument and its type, in other words"
DIFFERENT = {
    "DummyBackendTestCase.test_clear": KEPT,
    "DummyBackendTestCase.test_get_result": CLOCK,
    "DummyBackendTestCase.test_get_result_async": CLOCK,
    "DummyBackendTestCase.test_refresh_result": KEPT,
    "DummyBackendTestCase.test_refresh_result_async": KEPT,
    "ImmediateBackendTestCase.test_cannot_get_result": SUPPORTED,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": SUPPORTED,
    "ImmediateBackendTestCase.test_cannot_refresh_result": SUPPORTED,
    "ImmediateBackendTestCase.test_complex_return_value": WORDING,
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": "the worker gets it, not the caller",
    "ImmediateBackendTransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default": (
        "a task takes effect with the commit"
    ),
    "TaskTestCase.test_aenqueue_with_invalid_argument": WORDING,
    "TaskTestCase.test_enqueue_with_invalid_argument": WORDING,
    "TaskTestCase.test_get_result": CLOCK,
    "TaskTestCase.test_get_result_async": CLOCK,
    "TaskTestCase.test_refresh_result": CLOCK,
}
if IS_BACKPORT:
    DIFFERENT["DummyBackendTestCase.test_validate_disallowed_async_task"] = (
        "the text is of the backport, which writes `tasks` in lower case"
    )
REPLACED = {
    r"django\.tasks\.backends\.dummy\.DummyBackend": f"{STAND_INS}.WaitingBackend",
    r"django\.tasks\.backends\.immediate\.ImmediateBackend": f"{STAND_INS}.WorkingBackend",
    r"django\.tasks\.backends\.dummy import": f"{STAND_INS} import WaitingBackend as",
    r"django\.tasks\.backends\.immediate import": f"{STAND_INS} import WorkingBackend as",
}
OF_BACKPORT = {
    r"\bdjango\.tasks\b": "django_tasks",
    r"\bInvalidTask\b": "InvalidTaskError",
    r"\bInvalidTaskBackend\b": "InvalidTaskBackendError",
}
SETTINGS = """
import django
SECRET_KEY = "not one"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.sqlite3"}}
INSTALLED_APPS = ["tasks", "rota.contrib.django"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
TASKS = {"default": {"BACKEND": "rota.contrib.django.RotaBackend"}}
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(FETCH_S + PATIENCE_S + 30)]


def published_source() -> Path:
    """The source distribution of Django, fetched unless an earlier run has done so."""
    kept = FOLDER / f"django-{PUBLISHED}.tar.gz"
    if kept.exists() and hashlib.sha256(kept.read_bytes()).hexdigest() == SHA256:
        return kept
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=FOLDER) as name:
        fetch(Path(name))
        return (Path(name) / kept.name).replace(kept)  # whole, or not there


def fetch(folder: Path) -> None:
    wanted = folder / "wanted.txt"
    wanted.write_text(f"django=={PUBLISHED} --hash=sha256:{SHA256}\n", encoding="utf-8")
    command = [*FETCH, "--dest", str(folder), "--requirement", str(wanted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the source of Django {PUBLISHED} was not fetched within {FETCH_S} s")
    assert "DO NOT MATCH THE HASHES" not in done.stderr, done.stderr
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        pytest.skip(f"pip cannot fetch the source of Django {PUBLISHED}: {why}")


def write_project(folder: Path, source: Path) -> None:
    """A project whose app `tasks` is the folder of Django's tests."""
    replaced = {**REPLACED, **(OF_BACKPORT if IS_BACKPORT else {})}
    (folder / "tasks").mkdir()
    (folder / "tasks" / "__init__.py").touch()
    with tarfile.open(source) as archive:
        for name in MODULES:
            published = archive.extractfile(f"django-{PUBLISHED}/tests/tasks/{name}")
            assert published is not None
            text = published.read().decode()
            for pattern, replacement in replaced.items():
                text = re.sub(pattern, replacement, text)
            (folder / "tasks" / name).write_text(text, encoding="utf-8")
    (folder / "settings.py").write_text(SETTINGS, encoding="utf-8")
    (folder / "conftest.py").write_text("import django\n\ndjango.setup()\n", encoding="utf-8")


def run_tests(folder: Path, **variables: str) -> tuple[dict[str, str], int]:
    """The tests that failed, with their output, and the number of all tests."""
    report = folder / "report.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "tasks", "-q", f"--junitxml={report}"),
            *("-p", "no:schemathesis", "-p", "no:xdist", "-p", "no:asyncio"),
            *("-p", "no:cacheprovider", "--rootdir=.", "--timeout=30"),
        ],
        cwd=folder,
        env=environment(
            PYTHONPATH=os.pathsep.join([str(folder), str(ROOT)]),
            DJANGO_SETTINGS_MODULE="settings",
            **variables,
        ),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert report.exists(), done.stdout[-6_000:] + done.stderr[-2_000:]
    cases = list(ET.parse(report).iter("testcase"))
    failed = {
        f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}": problem.text or ""
        for case in cases
        for problem in case
        if problem.tag in {"failure", "error"}
    }
    return failed, len(cases)


def test_djangos_own_tests_pass_but_for_what_is_different(tmp_path: Path) -> None:
    source = published_source()
    for name in ("project", "waiting", "working"):
        (tmp_path / name).mkdir()
    write_project(tmp_path / "project", source)

    with Server(tmp_path / "waiting") as waiting, Server(tmp_path / "working") as working:
        failed, count = run_tests(
            tmp_path / "project", ROTA_URL=waiting.url, SITE_WORKING_URL=working.url
        )

    assert count >= FEWEST_TESTS
    unexpected = {name: text for name, text in failed.items() if name not in DIFFERENT}
    assert not unexpected, "\n\n".join(f"{name}: {text}" for name, text in unexpected.items())
    assert set(failed) == set(DIFFERENT)
