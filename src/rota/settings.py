"""Which settings does a coordinator run with, and where did each come from?

One frozen struct, validated once, at start. Precedence: flag, then environment (`ROTA_PORT`, and
plain `PORT`), then `[tool.rota]` in the pyproject.toml of the working directory, then default.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from rota.errors import Invalid

MEBIBYTE = 1024 * 1024
DAY_MS = 24 * 3600 * 1000


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may change. The description of each is its help text and reference row."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port of the HTTP API; 0 takes a free one.")
    ] = 7070
    store: Annotated[str, Meta(description="Where state is kept: sqlite:///FILE.")] = (
        "sqlite:///rota.db"
    )
    insecure: Annotated[
        bool, Meta(description="Listen beyond loopback without any token. Shown loudly.")
    ] = False
    require_token: Annotated[
        bool, Meta(description="Ask for a token on loopback too, as behind a proxy.")
    ] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="What is logged.")
    ] = "info"
    log_format: Annotated[
        Literal["auto", "text", "json"],
        Meta(description="Log lines for people or for machines; auto: people on a terminal."),
    ] = "auto"

    history_keep_ms: Annotated[
        int,
        Meta(
            ge=0, description="How long finished tasks and runs are kept, counted from their end."
        ),
    ] = 7 * DAY_MS
    job_lease_ms: Annotated[
        int,
        Meta(ge=100, description="How long a job started over the jobs API may run unheard of."),
    ] = 15 * 60 * 1000
    unclaimed_lease_ms: Annotated[
        int,
        Meta(
            ge=1000,
            description="A lease its worker does not list as running for this long was never "
            "received, and goes back to its queue.",
        ),
    ] = 30_000
    strategy: Annotated[
        Literal["weighted", "least-loaded", "power-of-two", "round-robin"],
        Meta(description="How a worker is chosen among several that wait."),
    ] = "weighted"
    scoring: Annotated[
        Literal["decayed", "lifetime"],
        Meta(description="Score over recent results with a slow start, or over all results."),
    ] = "decayed"
    degraded_after: Annotated[
        float, Meta(gt=0, description="Heartbeat intervals of silence until a worker is degraded.")
    ] = 2.0
    unhealthy_after: Annotated[
        float,
        Meta(gt=0, description="Heartbeat intervals of silence until a worker's leases move on."),
    ] = 3.0

    max_body_bytes: Annotated[
        int, Meta(ge=1024, description="Largest request body; larger ones get 413.")
    ] = 64 * MEBIBYTE
    max_payload_bytes: Annotated[
        int, Meta(ge=64, description="Largest payload, result or progress value; 413 beyond.")
    ] = 4 * MEBIBYTE
    max_artifact_bytes: Annotated[
        int, Meta(ge=1024, description="Largest artifact of a run; larger ones get 413.")
    ] = 256 * MEBIBYTE
    max_connections: Annotated[
        int, Meta(ge=1, description="Requests under way at once; 429 beyond.")
    ] = 4_096
    max_waiting: Annotated[
        int,
        Meta(
            ge=1,
            description="Tasks and other changes waiting for their commit; beyond it new "
            "submissions get 503 with Retry-After.",
        ),
    ] = 100_000

    def __post_init__(self) -> None:
        if self.degraded_after > self.unhealthy_after:
            raise Invalid("degraded_after must not be above unhealthy_after")


# The same fields without the check between them: that one is for all sources together.
_Source = msgspec.defstruct(
    "Source",
    [(field.name, field.type, field.default) for field in msgspec.structs.fields(Settings)],
    kw_only=True,
    forbid_unknown_fields=True,
)


def field_names() -> tuple[str, ...]:
    return Settings.__struct_fields__


def environment_name(field: str) -> str:
    return f"ROTA_{field.upper()}"


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], *, folder: Path | None = None
) -> Settings:
    """Put the sources together; a value that does not fit names where it came from."""
    values: dict[str, Any] = {}
    values |= _checked(_from_pyproject(folder or Path()), "pyproject.toml [tool.rota]", strict=True)
    values |= _checked(_from_environment(environment), "the environment", strict=False)
    given = {name: value for name, value in flags.items() if value is not None}
    values |= _checked(given, "the flags", strict=False)
    return msgspec.convert(values, Settings)


def _from_pyproject(folder: Path) -> dict[str, Any]:
    file = folder / "pyproject.toml"
    if not file.is_file():
        return {}
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Invalid(f"pyproject.toml cannot be read: {error}") from error
    section = document.get("tool", {}).get("rota", {})
    if not isinstance(section, dict):
        raise Invalid("pyproject.toml: [tool.rota] must be a table")
    return {name.replace("-", "_"): value for name, value in section.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"port": environment["PORT"]} if environment.get("PORT") else {}
    for name in field_names():
        if environment.get(environment_name(name)):
            found[name] = environment[environment_name(name)]
    return found


def _checked(values: dict[str, Any], source: str, *, strict: bool) -> dict[str, Any]:
    try:
        converted = msgspec.convert(values, _Source, strict=strict)
    except msgspec.ValidationError as error:
        raise Invalid(f"a setting from {source} is not valid: {error}") from error
    return {name: getattr(converted, name) for name in values}
