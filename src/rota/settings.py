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
SECOND_MS = 1000
SWEEP_MS = 500

# Variables that others have given some of these for long, beside ours.
OTHER_NAMES = {
    "port": "PORT",
    "zmq_host": "SHARD_COORDINATOR_BIND_HOST",
    "zmq_port": "SHARD_COORDINATOR_BIND_PORT",
    "shard_lease_ms": "HEARTBEAT_TIMEOUT_SECONDS",
    "shard_sweep_ms": "HEARTBEAT_CHECK_INTERVAL_SECONDS",
}


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may change. The description of each is its help text and reference row."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port of the HTTP API; 0 takes a free one.")
    ] = 7070
    store: Annotated[
        str,
        Meta(
            description="Where state is kept: sqlite:///FILE, or postgresql://USER@HOST/DATABASE "
            "(with ?schema=NAME for another schema than `postgres_schema`)."
        ),
    ] = "sqlite:///rota.db"
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

    replica_name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)] | None,
        Meta(
            description="What this coordinator is called among those that share its store; when "
            "none is given, the host's name and some digits.",
        ),
    ] = None
    poll_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="How often a coordinator that shares its store looks whether others have "
            "written, should no hint reach it: so long at the most a caller waits for what "
            "another coordinator has brought.",
        ),
    ] = 100

    history_keep_ms: Annotated[
        int,
        Meta(
            ge=0, description="How long finished tasks and runs are kept, counted from their end."
        ),
    ] = 7 * DAY_MS
    events_keep_ms: Annotated[
        int, Meta(ge=0, description="How long events are kept for those who follow them.")
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

    zmq_host: Annotated[
        str, Meta(description="Address that members of services reach over ZeroMQ.")
    ] = "127.0.0.1"
    zmq_port: Annotated[
        Annotated[int, Meta(ge=0, le=65535)] | None,
        Meta(
            description="Port for ZeroMQ; 0 takes a free one. When none is given it is 5555, or no "
            "ZeroMQ at all if that is taken.",
        ),
    ] = None
    zmq_keys: Annotated[
        str | None,
        Meta(
            description="File with the keys of the coordinator and of its clients; with it, "
            "ZeroMQ is encrypted, and each key speaks only for the workers it is meant for."
        ),
    ] = None
    zmq_max_connections: Annotated[
        int, Meta(ge=1, description="Connections over ZeroMQ at once; more are turned away.")
    ] = 4_096
    shard_lease_ms: Annotated[
        int,
        Meta(ge=100, description="How long a member of a service keeps its shards unheard of."),
    ] = 15_000
    shard_sweep_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=10_000,
            description="How often it is looked whether members are gone or shards are due.",
        ),
    ] = SWEEP_MS
    shard_stuck_ms: Annotated[
        int,
        Meta(
            ge=100,
            description="A member that keeps a shard for longer than this after it was asked to "
            "give it up is stuck.",
        ),
    ] = 30_000
    shard_stuck: Annotated[
        Literal["evict", "force"],
        Meta(
            description="What happens to a stuck member of protocol 1: it loses its membership, "
            "or only the shards it would not give up."
        ),
    ] = "evict"

    postgres_schema: Annotated[
        str, Meta(description="Schema of the tables on PostgreSQL; made if it is not there.")
    ] = "rota"
    postgres_readers: Annotated[
        int,
        Meta(
            ge=1, le=100, description="Connections to PostgreSQL that read, beside the writing one."
        ),
    ] = 8
    postgres_statement_ms: Annotated[
        int, Meta(ge=1_000, description="How long one statement on PostgreSQL may take.")
    ] = 15_000
    postgres_notify: Annotated[
        bool,
        Meta(
            description="Coordinators on one PostgreSQL wake each other by NOTIFY, which needs a "
            "connection that is not pooled by transaction; without it they only poll."
        ),
    ] = True

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
    max_events: Annotated[
        int,
        Meta(ge=0, description="Events kept, however young; beyond it the oldest are forgotten."),
    ] = 1_000_000
    max_sockets: Annotated[int, Meta(ge=0, description="WebSockets open at once; 429 beyond.")] = (
        10_000
    )
    max_frame_bytes: Annotated[
        int, Meta(ge=1024, description="Largest message on a WebSocket; it is closed beyond.")
    ] = 16 * MEBIBYTE
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


def field_schemas() -> dict[str, dict[str, Any]]:
    """Each field as a JSON schema; one that may be left open, as what it is when it is given."""
    properties = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    return {name: _when_given(schema) for name, schema in properties.items()}


def _when_given(schema: dict[str, Any]) -> dict[str, Any]:
    given = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return {**schema, **given[0]} if given else schema


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
    found = _from_other_names(environment)
    for name in field_names():
        if environment.get(environment_name(name)):
            found[name] = environment[environment_name(name)]
    return found


def _from_other_names(environment: Mapping[str, str]) -> dict[str, Any]:
    named = {field: name for field, name in OTHER_NAMES.items() if environment.get(name)}
    found: dict[str, Any] = {field: environment[name] for field, name in named.items()}
    for field, name in named.items():
        if name.endswith("_SECONDS"):
            found[field] = _milliseconds(name, environment[name])
    if "zmq_host" in found:
        found["zmq_host"] = found["zmq_host"].removeprefix("tcp://")
    if "shard_sweep_ms" in found:
        # Whoever asked for a look every so often does not mind a few in between.
        found["shard_sweep_ms"] = min(found["shard_sweep_ms"], SWEEP_MS)
    return found


def _milliseconds(name: str, text: str) -> int:
    try:
        return round(float(text) * SECOND_MS)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{name} in the environment is not a number of seconds: {text}") from error


def _checked(values: dict[str, Any], source: str, *, strict: bool) -> dict[str, Any]:
    try:
        converted = msgspec.convert(values, _Source, strict=strict)
    except msgspec.ValidationError as error:
        raise Invalid(f"a setting from {source} is not valid: {error}") from error
    return {name: getattr(converted, name) for name in values}
