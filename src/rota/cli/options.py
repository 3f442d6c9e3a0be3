"""Which options do several commands share? Each is defined here, once.

`settings_flags` makes one flag of every field of `Settings`; a flag that is not given stays None,
so that environment and pyproject.toml keep their say.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rota import settings
from rota.core import limits
from rota.settings import Settings

DEFAULT_URL = "http://127.0.0.1:7070"

Function = TypeVar("Function", bound=Callable[..., Any])

json_flag = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else."
)
dry_run_flag = click.option(
    "--dry-run", is_flag=True, help="Only say how many tasks are meant; change nothing."
)
yes_flag = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
url_option = click.option(
    "--url",
    envvar="ROTA_URL",
    show_envvar=True,
    default=DEFAULT_URL,
    show_default=True,
    help="Where the coordinator is; several on one store have commas between them.",
)
token_option = click.option(
    "--token",
    envvar="ROTA_TOKEN",
    show_envvar=True,
    help="Access token; better given by its variable, since others can read command lines.",
)


def page_options(function: Function) -> Function:
    """Add the options of a long list."""
    function = click.option("--cursor", help="Go on where an earlier page ended.")(function)
    return click.option(
        "--limit",
        type=click.IntRange(1, limits.MAX_PAGE),
        default=limits.DEFAULT_PAGE,
        show_default=True,
        help="Most rows to list.",
    )(function)


def settings_flags(*names: str) -> Callable[[Function], Function]:
    """Add a flag for each setting that is named; without names, for every setting."""
    schemas = settings.field_schemas()

    def decorate(function: Function) -> Function:
        for name in reversed(names or settings.field_names()):
            function = _setting_option(name, schemas[name])(function)
        return function

    return decorate


def load_settings(flags: dict[str, Any]) -> Settings:
    return settings.load(flags, os.environ)


def _setting_option(name: str, schema: dict[str, Any]) -> Callable[[Function], Function]:
    flag = name.replace("_", "-")
    default = schema["default"]
    return click.option(
        f"--{flag}/--no-{flag}" if schema.get("type") == "boolean" else f"--{flag}",
        name,
        type=_click_type(schema),
        default=None,
        envvar=[settings.environment_name(name), *(["PORT"] if name == "port" else [])],
        show_envvar=True,
        show_default=_default_text(default),
        help=schema["description"],
    )


def _default_text(default: Any) -> str | bool:
    if default is None:
        return False  # what then happens is told by the description
    return str(default).lower() if isinstance(default, bool) else str(default)


def _click_type(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return click.Choice(schema["enum"])
    match schema["type"]:
        case "boolean":
            return click.BOOL
        case "integer":
            return click.IntRange(min=schema.get("minimum"), max=schema.get("maximum"))
        case "number":
            return click.FloatRange(
                min=schema.get("exclusiveMinimum"), min_open="exclusiveMinimum" in schema
            )
        case _:
            return click.STRING


def labels_of(given: tuple[str, ...]) -> dict[str, str] | list[str]:
    """Labels are a mapping when each is a pair, and a list of words otherwise."""
    pairs = [label.partition("=") for label in given]
    if all(sign for _, sign, _ in pairs):
        return {key: value for key, _, value in pairs}
    return list(given)
