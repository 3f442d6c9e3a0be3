"""Limits and tenants of tasks: options whose keys may be templates over the arguments."""

from typing import Any

import pytest

from rota import Concurrency, Invalid, Rate, Rota
from rota.sdk.app.registration import TaskDecorator
from rota.sdk.arguments import InvalidArguments
from rota.sdk.client import calls
from rota.sdk.task import Task


@pytest.fixture
def app() -> Rota:
    return Rota("http://127.0.0.1:1")


def task_with(app: Rota, **options: Any) -> Task[..., Any]:
    def send(user_id: int, *, region: str = "eu") -> None: ...

    decorate: TaskDecorator = app.task(**options)
    return decorate(send)


def test_limits_and_tenant_stand_in_the_new_task(app: Rota) -> None:
    one = Concurrency("mail", limit=2)
    several = [Rate("smtp", limit=10), Rate("smtp:day", limit=1_000, per_ms=86_400_000)]
    send = task_with(app, concurrency=one, rate=several, fair_key="ann")

    new_task = send.bind(7).new_task

    assert new_task.concurrency == one
    assert new_task.rate == several
    assert new_task.fair_key == "ann"


def test_keys_are_filled_from_the_arguments_and_their_defaults(app: Rota) -> None:
    send = task_with(
        app,
        concurrency=[Concurrency("user:{user_id}", limit=2, hold="task"), Concurrency("all")],
        rate=Rate("smtp:{region}", limit=10),
        fair_key="{region}/{user_id:04}",
    )

    by_default = send.bind(7).new_task
    by_name = send.bind(user_id=8, region="us").new_task

    assert by_default.concurrency == [
        Concurrency("user:7", limit=2, hold="task"),
        Concurrency("all"),
    ]
    assert by_default.rate == Rate("smtp:eu", limit=10)
    assert by_default.fair_key == "eu/0007"
    assert by_name.rate == Rate("smtp:us", limit=10)
    assert by_name.fair_key == "us/0008"


def test_a_field_reaches_into_an_argument(app: Rota) -> None:
    @app.task(fair_key="{order[customer]}")
    def ship(order: dict[str, str]) -> None: ...

    assert ship.bind({"customer": "ann"}).new_task.fair_key == "ann"
    with pytest.raises(InvalidArguments, match="cannot be filled: KeyError"):
        ship.bind({})


def test_double_braces_are_braces(app: Rota) -> None:
    send = task_with(app, fair_key="{{{user_id}}}", concurrency=Concurrency("{{}}"))

    new_task = send.bind(7).new_task

    assert new_task.fair_key == "{7}"
    assert new_task.concurrency == Concurrency("{}")


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": Concurrency("user:{user}")},
        {"rate": [Rate("user:{user}", limit=1)]},
        {"fair_key": "{user.name}"},
        {"fair_key": "{user_id:{user}}"},
    ],
)
def test_a_template_that_names_no_parameter_is_refused_where_it_is_written(
    app: Rota, options: dict[str, Any]
) -> None:
    with pytest.raises(Invalid, match=r"'send'.*names 'user'.*it has: user_id, region"):
        task_with(app, **options)
    with pytest.raises(Invalid, match="not a parameter"):
        task_with(app).using(**options)


@pytest.mark.parametrize("template", ["user:{", "user:}", "{}", "{0}"])
def test_a_broken_template_is_refused_where_it_is_written(app: Rota, template: str) -> None:
    with pytest.raises(Invalid, match="'send'"):
        task_with(app, fair_key=template)


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": Concurrency("", limit=1)},
        {"concurrency": Concurrency("a", limit=-1)},
        {"rate": Rate("a", limit=0)},
        {"rate": Rate("a", limit=1, burst=1, cost=2)},
        {"concurrency": Concurrency("a"), "rate": Rate("a", limit=1)},
        {"concurrency": [Concurrency(str(number)) for number in range(5)]},
    ],
)
def test_limits_out_of_bounds_are_refused_where_they_are_written(
    app: Rota, options: dict[str, Any]
) -> None:
    with pytest.raises(Invalid):
        task_with(app, **options)


def test_a_key_that_gets_too_long_is_refused_before_it_is_sent(app: Rota) -> None:
    @app.task(concurrency=Concurrency("{name}"))
    def work(name: str) -> None: ...

    for name in ("", "x" * 1_000):
        with pytest.raises(InvalidArguments, match="1 to"):
            work.bind(name)


def test_using_replaces_the_limits_of_a_copy(app: Rota) -> None:
    send = task_with(app, concurrency=Concurrency("user:{user_id}"), fair_key="ann")

    other = send.using(concurrency=Concurrency("region:{region}"))

    assert other.bind(7).new_task.concurrency == Concurrency("region:eu")
    assert other.bind(7).new_task.fair_key == "ann"
    assert send.bind(7).new_task.concurrency == Concurrency("user:7")


@pytest.mark.usefixtures("server")
class TestServed:
    @pytest.fixture
    def app(self, server: Any) -> Any:
        with Rota(server.url) as one:
            yield one

    def test_the_coordinator_gets_the_filled_keys(self, app: Rota) -> None:
        send = task_with(app, concurrency=Concurrency("user:{user_id}"), fair_key="{region}")

        handle = send.enqueue(7)

        shown = app.client.run(calls.get_task(handle.id))
        assert shown.concurrency == Concurrency("user:7")
        assert shown.fair_key == "eu"

    def test_a_task_enqueued_by_name_fills_keys_from_its_payload(self, app: Rota) -> None:
        handle = app.enqueue("ship", {"customer": "ann"}, fair_key="{customer}")

        assert app.client.run(calls.get_task(handle.id)).fair_key == "ann"
        with pytest.raises(Invalid, match="not a parameter"):
            app.enqueue("ship", {"customer": "ann"}, fair_key="{user}")
        with pytest.raises(Invalid, match="not a parameter"):
            app.enqueue("ship", 1, fair_key="{user}")
