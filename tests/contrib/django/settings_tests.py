"""The settings of a backend: what is wrong with them is said by the system checks."""

import os
import socket
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured  # type: ignore[import-untyped]  # no types
from django.core.management import CommandError, call_command  # type: ignore[import-untyped]
from django.test import override_settings  # type: ignore[import-untyped]  # no types

from rota.contrib.django.backend import RotaBackend, app_of
from rota.contrib.django.checks import check_coordinators
from rota.contrib.django.task_api import Task
from tests.contrib.django.site import tasks


def backend_with(**options: Any) -> RotaBackend:
    return RotaBackend("default", {"QUEUES": ["default"], "OPTIONS": options})


def found(backend: RotaBackend) -> list[tuple[str, str]]:
    return [(one.id, one.msg) for one in backend.check()]


def setting(**options: Any) -> Any:
    params = {"BACKEND": "rota.contrib.django.RotaBackend", "OPTIONS": options}
    return override_settings(TASKS={"default": params})


def test_settings_that_are_right_have_no_findings() -> None:
    assert found(backend_with()) == []  # the URL is that of ROTA_URL


def test_a_missing_url_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_URL")

    ((number, text),) = found(backend_with())

    assert (number, text) == (
        "rota.E001",
        "TASKS['default']: there is no URL of a coordinator.",
    )
    with pytest.raises(ImproperlyConfigured, match=r"ROTA_URL.*rota\.E001"):
        backend_with().enqueue(tasks.add, [1], {})


@pytest.mark.parametrize(
    ("options", "number", "text"),
    [
        ({"urll": "http://x"}, "rota.E002", "has no 'urll'; did you mean 'url'"),
        ({"url": 7}, "rota.E002", "Expected `str | null`, got `int`"),
        ({"transaction": "never"}, "rota.E002", "Invalid enum value 'never'"),
        ({"url": "sqlite:///rota.db"}, "rota.E003", "does not start with http://"),
        ({"url": "http://a,postgresql://b"}, "rota.E003", "'postgresql://b'"),
        ({"database": "other"}, "rota.E004", "not in DATABASES"),
        ({"transaction": "inbox"}, "rota.E004", "is sqlite"),
        ({"task_options": {"max_atempts": 2}}, "rota.E005", "did you mean 'max_attempts'"),
        ({"task_options": {"queue": "mail"}}, "rota.E005", "queue_name"),
    ],
)
def test_each_mistake_has_its_number(options: dict[str, Any], number: str, text: str) -> None:
    ((first, said), *_) = found(backend_with(**options))

    assert first == number
    assert text in said


def test_manage_py_check_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with setting(urll="http://x"), pytest.raises(Exception, match=r"rota\.E002"):
        call_command("check")


def test_an_unreachable_coordinator_is_a_warning_only_of_deployments() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with setting(url=url):
            call_command("check", stderr=StringIO())
            ((warning),) = check_coordinators()

    assert warning.id == "rota.W001"
    assert url in warning.msg


def test_a_token_that_is_not_known_is_a_warning() -> None:
    with setting(url=os.environ["ROTA_URL"], token="rota_" + "x" * 43):
        (warning,) = check_coordinators()

    assert warning.id == "rota.W002"


def test_a_coordinator_that_answers_is_no_warning() -> None:
    assert check_coordinators() == []


def test_backends_of_all_threads_share_their_connections() -> None:
    assert backend_with().rota is backend_with().rota
    assert app_of(backend_with().checked_options) is not backend_with(token="x").rota


def test_the_worker_refuses_a_queue_that_no_task_can_be_in() -> None:
    with pytest.raises(CommandError, match="no queue 'mial'; its QUEUES are: default, mail, other"):
        call_command("rota_worker", queues="mial", reload=False)


def test_the_worker_refuses_a_backend_that_is_not_rotas() -> None:
    with pytest.raises(CommandError, match="'other' is no backend of Rota"):
        call_command("rota_worker", backend="other", reload=False)


def test_tasks_are_those_of_django(backend: RotaBackend) -> None:
    assert isinstance(tasks.add, Task)
