"""Options that several commands share.

`settings_flags` makes one flag of every field of `Settings`; a flag that is not given stays None,
so that the environment and pyproject.toml still count.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from rota import settings
from rota.cli.inputs import Milliseconds, WrittenDuration
from rota.core import limits
from rota.core.schedules.durations import ENDING
from rota.settings import Settings

Function = TypeVar("Function", bound=Callable[..., Any])

json_flag = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else."
)
yes_flag = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def duration_option(
    written: str,
    number: str,
    *,
    default_ms: int | None = None,
    least_ms: int = 0,
    most_ms: int | None = None,
    description: str,
) -> Callable[[Function], Function]:
    """Add an option for a time: one that takes it with its unit, and one in milliseconds.

    The command gets milliseconds, under the name of the second one.
    """
    name = number.removeprefix("--").replace("-", "_")
    key = f"rota.{name}"
    number_type = Milliseconds(min=least_ms, max=most_ms)

    def keep(context: click.Context, option: click.Parameter, value: int | None) -> None:
        if value is not None:
            context.meta[key] = number_type.convert(value, option, context)

    def choose(context: click.Context, _: click.Parameter, value: int | None) -> int | None:
        given = context.meta.pop(key, None)
        if given is None:
            return value
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"give {written} or {number}, not both")
        return int(given)

    def decorate(function: Function) -> Function:
        function = click.option(
            number,
            name,
            type=number_type,
            default=default_ms,
            show_default=default_ms is not None,
            callback=choose,
            help="The same in milliseconds.",
        )(function)
        return click.option(
            written, type=WrittenDuration(), expose_value=False, callback=keep, help=description
        )(function)

    return decorate


wait_timeout_option = duration_option(
    "--wait-timeout",
    "--wait-timeout-ms",
    default_ms=3_600_000,
    description="Longest wait for the end, as 30s or 5m; after it the exit code is 4.",
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
        type=_click_type(name, schema),
        default=None,
        envvar=[settings.environment_name(name), *(["PORT"] if name == "port" else [])],
        show_envvar=True,
        show_default=_default_text(default),
        help=schema["description"],
        cls=SettingOption,
    )


class SettingOption(click.Option):
    """A flag of a setting: an error says what is allowed, and names the variable that was read.

    Its default comes from the settings; click puts such a default in parentheses.
    """

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter:
            allowed = settings.allowed_values(str(self.name))
            message = f"{value!r} is not allowed; give {allowed}"
            raise click.BadParameter(message, ctx, self) from None

    def get_error_hint(self, ctx: click.Context | None) -> str:
        source = None if ctx is None else ctx.get_parameter_source(str(self.name))
        if source is ParameterSource.ENVIRONMENT and isinstance(self.envvar, list):
            return next(f"{one} in the environment" for one in self.envvar if os.environ.get(one))
        return super().get_error_hint(ctx)

    def get_help_extra(self, ctx: click.Context) -> click.types.OptionHelpExtra:
        extra = super().get_help_extra(ctx)
        if "default" in extra:
            extra["default"] = str(extra["default"]).removeprefix("(").removesuffix(")") or "none"
        return extra


def _default_text(default: Any) -> str | bool:
    if default is None:
        return False  # the description says what happens then
    return str(default).lower() if isinstance(default, bool) else str(default)


def _click_type(name: str, schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return click.Choice(schema["enum"])
    match schema["type"]:
        case "boolean":
            return click.BOOL
        case "integer" if name.endswith(ENDING):
            return Milliseconds(min=schema.get("minimum", 0), max=schema.get("maximum"))
        case "integer":
            return click.IntRange(min=schema.get("minimum"), max=schema.get("maximum"))
        case "number":
            return click.FloatRange(
                min=schema.get("exclusiveMinimum"), min_open="exclusiveMinimum" in schema
            )
        case _:
            return click.STRING
