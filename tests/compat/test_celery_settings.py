"""Celery's settings and periodic tasks, and the page that maps them."""

import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rota.compat.celery import Celery, crontab, shared_task
from rota.compat.celery.configuration import SETTINGS
from rota.errors import Invalid
from rota.testing import TestCoordinator
from rota.testing.coordinator import TurnedClock

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "migrate-from-celery.md"
START_MS = 1_800_000_000_000  # 2027-01-15 08:00 UTC
HOUR_MS = 3_600_000
NOWHERE = "http://127.0.0.1:1"


def made(**settings: Any) -> Celery:
    return Celery("shop", broker=NOWHERE, **settings)


# --- settings -----------------------------------------------------------------------------------


def test_settings_give_tasks_their_queue_priority_and_time_limit() -> None:
    app = made(task_default_queue="slow", task_default_priority=3, task_time_limit=60)
    app.conf.task_routes = {"images.*": {"queue": "images"}, "mail": "post"}

    templates = {
        name: app.task(lambda: None, name=name).template for name in ("a", "images.b", "mail")
    }

    assert {name: one.queue for name, one in templates.items()} == {
        "a": "slow",
        "images.b": "images",
        "mail": "post",
    }
    assert {(one.priority, one.timeout_ms) for one in templates.values()} == {(3, 60_000)}


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(Invalid, match="did you mean 'task_default_queue'"):
        made(task_defualt_queue="x")


def test_a_setting_without_a_counterpart_says_what_to_do() -> None:
    with pytest.raises(Invalid, match=r"use `task_time_limit`"):
        made(task_soft_time_limit=5)
    with pytest.raises(Invalid, match="may only be 'json'"):
        made(accept_content=["json", "pickle"])
    assert made(task_soft_time_limit=None, accept_content=["json"]).conf.timezone is None


def test_a_broker_is_refused_without_its_password() -> None:
    with pytest.raises(Invalid, match="there is no broker") as caught:
        Celery("shop", broker="redis://user:secret@redis:6379/0")
    assert "secret" not in str(caught.value)


def test_settings_come_from_a_module_with_a_namespace() -> None:
    app = made()

    settings = SimpleNamespace(CELERY_TASK_DEFAULT_QUEUE="q", CELERY_TIMEZONE="UTC", OTHER=1)
    app.config_from_object(settings, namespace="CELERY")

    assert (app.conf.task_default_queue, app.conf.timezone) == ("q", "UTC")
    app.config_from_object({"task_default_priority": 4, "broker_url": "http://127.0.0.1:2"})
    assert app.conf.task_default_priority == 4


def test_modules_are_imported_when_the_tasks_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_shop"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    text = "from rota.compat.celery import shared_task\n@shared_task\ndef pay(x):\n    return x\n"
    (package / "tasks.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    app = made()

    app.autodiscover_tasks(["some_shop", "no_such_package"])

    assert "some_shop.tasks" not in sys.modules
    assert "some_shop.tasks.pay" in app.tasks


def test_shared_tasks_defined_before_the_app_belong_to_it() -> None:
    @shared_task(name="early")
    def early() -> None: ...

    app = made()

    assert "early" in app.tasks
    assert early.app is app


def test_the_page_has_a_row_for_every_setting() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [
        name
        for name, setting in SETTINGS.items()
        if f"| `{name}` | {setting.effect} | {setting.note} |" not in page
    ]

    assert not missing


# --- periodic tasks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expression"),
    [
        (crontab(), "* * * * *"),
        (crontab(minute=0, hour="*/3"), "0 */3 * * *"),
        (crontab(minute="0", hour=7, day_of_week="mon-fri"), "0 7 * * mon-fri"),
        (crontab(0, 0, day_of_month="1, 15", month_of_year="*/3"), "0 0 1,15 */3 *"),
    ],
)
def test_a_crontab_is_a_cron_expression(pattern: Any, expression: str) -> None:
    assert pattern.expression == expression


def test_beat_entries_fire() -> None:
    app = made(timezone="Europe/Berlin")

    @app.task
    def clean(days: int, mode: str = "soft") -> None: ...

    app.conf.beat_schedule = {
        "nightly": {"task": clean.name, "schedule": crontab(minute=0, hour=10), "args": (30,)},
        "often": {"task": clean.name, "schedule": timedelta(minutes=30), "kwargs": {"days": 1}},
    }

    @app.on_after_configure.connect
    def more(sender: Celery, **_: Any) -> None:
        sender.add_periodic_task(3600.0, clean.s(2, mode="hard"), name="hourly", queue="night")

    with TestCoordinator(clock=TurnedClock(START_MS)) as coordinator:
        coordinator.attach(app)
        app.deploy_schedules()
        coordinator.clock.advance(minutes=90)

        coordinator.assert_enqueued(clean, args={"days": 30}, count=1)  # 10:00 in Berlin
        coordinator.assert_enqueued(clean, args={"days": 2, "mode": "hard"}, queue="night")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"task": "none", "schedule": 5}, "no task 'none'"),
        ({"task": "work"}, "lacks 'schedule'"),
        ({"task": "work", "schedule": 5, "every": 1}, "no field 'every'"),
        ({"task": "work", "schedule": "daily"}, "a number of seconds, a timedelta or crontab"),
    ],
)
def test_a_wrong_beat_entry_is_named(entry: dict[str, Any], text: str) -> None:
    app = made(beat_schedule={"x": entry})
    app.task(lambda: None, name="work")

    with pytest.raises(Invalid, match=text):
        _ = app.schedules
