"""System checks that ask the coordinator; `manage.py check --deploy` runs them.

The checks of the settings are part of the backend, and Django runs them with every command.
"""

from collections.abc import Iterator
from typing import Any

from django.core import checks  # type: ignore[import-untyped]  # Django has no types
from msgspec.structs import replace

from rota.addresses import without_password
from rota.contrib.django.backend import RotaBackend
from rota.contrib.django.options import findings
from rota.contrib.django.task_api import task_backends
from rota.errors import Forbidden, RotaError, Unauthorized
from rota.sdk.client import calls

ANSWER_WITHIN_S = 5.0


def rota_backends() -> dict[str, RotaBackend]:
    """The backends of the settings that are Rota's, by alias."""
    found = {alias: task_backends[alias] for alias in task_backends}
    return {alias: one for alias, one in found.items() if isinstance(one, RotaBackend)}


@checks.register("rota", deploy=True)  # type: ignore[untyped-decorator]  # Django has no types
def check_coordinators(app_configs: Any = None, **_: Any) -> list[Any]:  # noqa: ARG001 - Django's
    """Ask each coordinator whether it is there and accepts the token."""
    return [
        found
        for backend in rota_backends().values()
        if next(findings(backend.options), None) is None  # other checks name what is wrong there
        for found in _warnings(backend)
    ]


def _warnings(backend: RotaBackend) -> Iterator[Any]:
    client = backend.rota.client.without_repeats()
    where = without_password(client.transport.address)
    try:
        client.run(replace(calls.list_tasks(limit=1), timeout_s=ANSWER_WITHIN_S))
    except (Unauthorized, Forbidden) as error:
        yield checks.Warning(
            f"TASKS[{backend.alias!r}]: the coordinator at {where} refuses the token: "
            f"{error.detail}",
            hint='Set OPTIONS["token"] or ROTA_TOKEN to a token that may read and submit.',
            id="rota.W002",
        )
    except RotaError as error:
        yield checks.Warning(
            f"TASKS[{backend.alias!r}]: the coordinator at {where} does not answer: {error.detail}",
            hint='Start it, or correct OPTIONS["url"] or ROTA_URL.',
            id="rota.W001",
        )
