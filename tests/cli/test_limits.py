from typing import Any

import pytest

from rota.cli.render.output import ExitCode
from rota.core.flows.model import Concurrency, Rate
from rota.core.tasks.model import NewTask
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from tests.cli.conftest import Command, Hand, document


def submit(client: Client, **options: Any) -> None:
    client.run(calls.submit([NewTask(name="add", **options)]))


def test_limits_are_listed_with_what_runs_and_waits(rota: Command, client: Client) -> None:
    hand = Hand(client, "listed")
    for _ in range(3):
        submit(client, queue="listed", concurrency=Concurrency("listed:one"))
    submit(client, queue="other", rate=Rate("listed:rate", limit=600, per_ms=60_000))
    hand.lease()

    lines = rota("limits", "ls", "--prefix", "listed:").stdout.splitlines()
    rates = document(rota("limits", "ls", "--prefix", "listed:", "--kind", "rate", "--json"))

    assert lines[0].split() == ["KEY", "KIND", "LIMIT", "RUNNING", "WAITING", "OPENS", "PINNED"]
    assert lines[1].split() == ["listed:one", "concurrency", "1", "1", "2", "-", "no"]
    assert lines[2].split() == ["listed:rate", "rate", "600/m", "-", "1", "-", "no"]
    assert [item["key"] for item in rates["items"]] == ["listed:rate"]


def test_a_limit_is_set_and_unpinned(rota: Command, client: Client) -> None:
    submit(client, queue="held", concurrency=Concurrency("user/7", limit=2))

    assert rota("limits", "set", "user/7", "5").stdout == "limit user/7 is 5, pinned\n"
    assert document(rota("limits", "show", "user/7", "--json"))["limit"] == 5
    assert rota("limits", "unpin", "user/7").stdout == "limit user/7 is 2, not pinned\n"
    assert rota("limits", "pin", "user/7").stdout == "limit user/7 is 2, pinned\n"
    assert "pinned   yes" in rota("limits", "show", "user/7").stdout


def test_a_rate_is_set_before_any_task_names_it(rota: Command) -> None:
    made = document(rota("limits", "set", "api", "10/500ms", "--burst", "3", "--json"))
    changed = rota("limits", "set", "api", "20")
    shown = rota("limits", "show", "api").stdout
    gone = rota("limits", "unpin", "api")

    assert (made["kind"], made["limit"], made["per_ms"], made["burst"]) == ("rate", 10, 500, 3)
    assert changed.stdout == "limit api is 20/500ms, pinned\n"
    assert "open" in shown
    assert gone.stdout == "limit api is forgotten: no task names it\n"
    assert "not found" in rota("limits", "show", "api").stderr


@pytest.mark.parametrize("value", ["ten", "10/", "10/1y", "/s", "-1"])
def test_a_value_that_is_no_limit_is_refused(rota: Command, value: str) -> None:
    assert rota("limits", "set", "--", "api", value).exit_code == ExitCode.UNUSABLE


def test_an_unknown_limit_cannot_be_pinned(rota: Command) -> None:
    assert "limit: must be given" in rota("limits", "pin", "nowhere").stderr


# --- settings of queues ---------------------------------------------------------------------------


def test_settings_of_a_queue_are_set_one_by_one_and_reset(rota: Command) -> None:
    rota("queues", "set", "mail", "--max-running", "5", "--max-queued", "100", "--rate", "10/1s")
    both = document(
        rota("queues", "set", "mail", "--weight", "ann=2", "--weight", "a=b=3", "--json")
    )
    after = document(
        rota("queues", "set", "mail", "--max-queued", "none", "--weight", "ann=none", "--json")
    )
    shown = rota("queues", "show", "mail").stdout

    assert (both["max_running"], both["max_queued"]) == (5, 100)
    assert both["rate"] == {"limit": 10, "per_ms": 1_000, "burst": 1, "mode": "smooth"}
    assert both["weights"] == {"ann": 2, "a=b": 3}
    assert (after["max_running"], after["max_queued"], after["weights"]) == (5, None, {"a=b": 3})
    assert ["rate", "10/s"] in [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--max-running", "many"],
        ["--max-running", "99999999999"],
        ["--rate", "fast"],
        ["--burst", "2"],
        ["--weight", "ann"],
        ["--weight", "ann=1000"],
    ],
)
def test_settings_that_make_no_sense_are_refused(rota: Command, flags: list[str]) -> None:
    ended = rota("queues", "set", "mail", *flags)

    assert ended.exit_code == ExitCode.UNUSABLE
    assert len(ended.stderr.splitlines()) == 1


# --- submitted tasks ------------------------------------------------------------------------------


def test_a_submitted_task_has_the_limits_of_its_flags(rota: Command) -> None:
    task = document(
        rota(
            *("submit", "add", "--queue", "flags", "--fair-key", "ann", "--json"),
            *("--concurrency", "flags:a=b=3", "--concurrency", "flags:one"),
            *("--rate", "flags:rate=10/1s"),
            *("--rate", '{"key": "flags:json", "limit": 1, "mode": "window"}'),
        )
    )

    assert [(one["key"], one["limit"]) for one in task["concurrency"]] == [
        ("flags:a=b", 3),
        ("flags:one", 1),
    ]
    assert [(one["key"], one["limit"], one["per_ms"], one["mode"]) for one in task["rate"]] == [
        ("flags:rate", 10, 1_000, "smooth"),
        ("flags:json", 1, 1_000, "window"),
    ]
    assert task["fair_key"] == "ann"


@pytest.mark.parametrize(
    "flags",
    [
        ["--concurrency", "a=b"],
        ["--concurrency", "{"],
        ["--concurrency", '{"key": "a", "most": 1}'],
        ["--rate", "openai"],
        ["--rate", "openai=10"],
        ["--rate", "=10/s"],
    ],
)
def test_flags_that_are_no_limits_are_refused(rota: Command, flags: list[str]) -> None:
    assert rota("submit", "add", *flags).exit_code == ExitCode.UNUSABLE


def test_a_queue_is_shown_with_its_target_and_its_tenants(rota: Command, client: Client) -> None:
    hand = Hand(client, "shared")
    rota("queues", "set", "shared", "--target-wait", "5m", "--weight", "ann=2")
    for tenant in ("ann", "ann", "bob"):
        submit(client, queue="shared", fair_key=tenant)
    hand.lease()

    shown = rota("queues", "show", "shared").stdout
    report = document(rota("queues", "show", "shared", "--json"))
    wrong = rota("queues", "set", "shared", "--target-wait", "soon")

    assert "target wait    5 min, met" in shown
    assert "fairness       tasks" in shown
    assert "tenant ann     1 queued, 1 running, 100% of late, weight 2" in shown
    assert "tenant bob     1 queued, 0 running, 0% of late" in shown
    assert [one["key"] for one in report["tenants"]["items"]] == ["ann", "bob"]
    assert wrong.exit_code == ExitCode.UNUSABLE
    assert "'soon' is not a duration" in wrong.stderr
