"""Finds the app that `MODULE:APP` names."""

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from rota.cli.render.output import Refusal
from rota.sdk.app.app import Rota


def app_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `MODULE:APP`, as an argument or behind `-A`."""
    function = click.option(
        "-A", "--app", "app_option", metavar="MODULE:APP", help="The app, as an option."
    )(function)
    return click.argument("app", metavar="MODULE:APP", required=False)(function)


def chosen_app(argument: str | None, option: str | None) -> Rota:
    """Load the app that the argument or the option names."""
    reference = argument or option
    if reference is None or (argument and option):
        raise click.UsageError("name one app, as MODULE:APP or with -A MODULE:APP")
    return load_app(reference)


def load_app(reference: str) -> Rota:
    """Import an app; `MODULE` alone is enough when it has only one."""
    module_name, _, path = reference.partition(":")
    module = _import(module_name)
    found: Any = module
    for name in path.split(".") if path else ():
        if not hasattr(found, name):
            raise _no_app(f"{module_name!r} has no {path!r}; it has {_names(_apps(module))}")
        found = getattr(found, name)
    if found is module:
        apps = _apps(module)
        if len(apps) != 1:
            raise _no_app(f"name one app of {module_name!r}: it has {_names(apps)}")
        (found,) = apps.values()
    if not isinstance(found, Rota):
        raise _no_app(f"{reference!r} is a {type(found).__name__}, not a Rota app")
    return found


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that is missing inside the app's own code is reported with a traceback, below.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            wanted = name.removesuffix(".py").replace("/", ".")
            hint = f"; modules are named like {wanted}:app" if wanted != name else ""
            raise _no_app(
                f"there is no module {name!r} in {here} or on Python's path{hint}"
            ) from None
        raise _broken(name, error) from error
    except (ValueError, TypeError) as error:
        if name and not name.startswith("."):
            raise _broken(name, error) from error
        raise _no_app(f"{name!r} is not the name of a module; an app is named MODULE:APP") from None
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> Refusal:
    traceback.print_exception(error)  # the place in the user's code
    return Refusal(f"importing {name!r} failed: {type(error).__name__}: {error}", code="app_broken")


def _no_app(text: str) -> Refusal:
    return Refusal(text, code="app_not_found")


def _apps(module: ModuleType) -> dict[str, Rota]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Rota)}


def _names(apps: dict[str, Rota]) -> str:
    return ", ".join(sorted(apps)) or "none"
