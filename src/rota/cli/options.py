"""Options that several commands share.

`settings_flags` makes one flag of every field of `Settings`; a flag that is not given stays None,
so that the environment and pyproject.toml still count.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rota import settings
from rota.core import limits
from rota.settings import Settings

Function = TypeVar("Function", bound=Callable[..., Any])

json_flag = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else."
)
yes_flag = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
wait_timeout_option = click.option(
    "--wait-timeout-ms",
    type=click.IntRange(min=0),
    default=3_600_000,
    show_default=True,
    help="Longest wait for the end; after it the exit code is 4.",
)


def page_options(function: Function) -> Function:
    """Add the options of a long list."""
    function = click.option("--cursor", help="Continue where an earlier page ended.")(function)
    return click.option(
        "--limit",
        type=click.IntRange(1, limits.MAX_PAGE),
        default=limits.DEFAULT_PAGE,
        show_default=True,
        help="Largest number of rows to list.",
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
        return False  # the description says what happens then
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
