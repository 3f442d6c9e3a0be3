"""The page on settings: every field of `Settings`, and the variables of clients."""

from typing import Any

import click

from reference_pages.markdown import code, codes, document, measured, table
from rota import settings
from rota.cli.commands import queues

OF_SHARDS = {
    "ROTA_ZMQ": "Where the coordinator speaks ZeroMQ, such as `tcp://127.0.0.1:5555`; without it "
    "workers speak HTTP.",
    "ROTA_ZMQ_PUBLIC_KEY": "The worker's own public [key](../how-to/curve-keys.md).",
    "ROTA_ZMQ_SECRET_KEY": "The secret one that goes with it.",
    "ROTA_ZMQ_SERVER_KEY": "The coordinator's public key.",
}


def page() -> str:
    schemas = settings.field_schemas()
    return document(
        "# Settings",
        "A coordinator's settings are read once, at start. A flag of `rota up` counts before the "
        "environment, the environment before `[tool.rota]` in the `pyproject.toml` of the working "
        "directory (fields named as below, without the dashes in front), and that before the "
        "default. A value that does not fit is refused, and the message names where it came from "
        "(the variable, if that is the environment), the value, and what is allowed.",
        table(
            ("flag", "variable", "default", "values", "meaning"),
            (_row(name, schemas[name]) for name in settings.field_names()),
        ),
        "## Of clients and workers",
        "The SDK and every command that talks to a coordinator read these.",
        table(
            ("variable", "meaning"),
            ((code(one.envvar), one.help) for one in _client_options()),
        ),
        "Workers that own [shards](../how-to/share-shards.md) read these as well.",
        table(("variable", "meaning"), ((code(one), said) for one, said in OF_SHARDS.items())),
        "Without `ROTA_URL`, commands and a `Rota()` in a program try `http://127.0.0.1:7070`. A "
        "`Rota(embedded=True)` opens a coordinator on `sqlite:///rota.db` inside the program.",
    )


def _row(name: str, schema: dict[str, Any]) -> tuple[str, ...]:
    flag = name.replace("_", "-")
    is_switch = schema.get("type") == "boolean"
    variables = [settings.environment_name(name)]
    if name in settings.OTHER_NAMES:
        variables.append(settings.OTHER_NAMES[name])
    default = schema["default"]
    return (
        codes([f"--{flag}", f"--no-{flag}"] if is_switch else [f"--{flag}"]),
        codes(variables),
        code(str(default).lower()) if is_switch else _default(name, default),
        _values(schema),
        schema["description"],
    )


def _default(name: str, default: Any) -> str:
    return "" if default is None else measured(name, default)


def _values(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return codes(schema["enum"])
    bounds = []
    if "minimum" in schema:
        bounds.append(f"≥ {schema['minimum']:,}")
    if "exclusiveMinimum" in schema:
        bounds.append(f"> {schema['exclusiveMinimum']:,}")
    if "maximum" in schema:
        bounds.append(f"≤ {schema['maximum']:,}")
    return f"{schema['type']} {', '.join(bounds)}".strip()


def _client_options() -> list[click.Option]:
    """The options of any command that talks to a coordinator."""
    options = [one for one in queues.ls.params if isinstance(one, click.Option)]
    return [one for one in options if one.envvar]
