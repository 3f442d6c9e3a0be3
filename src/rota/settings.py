"""Settings of a coordinator: one frozen struct, validated once, at start.

Precedence: flag, then environment (`ROTA_PORT`, and plain `PORT`), then `[tool.rota]` in the
pyproject.toml of the working directory, then default.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from rota.addresses import without_password
from rota.core.schedules.durations import ENDING, FORM, milliseconds_of
from rota.errors import Invalid, did_you_mean

MEBIBYTE = 1024 * 1024
DAY_MS = 24 * 3600 * 1000
SECOND_MS = 1000
SWEEP_MS = 500

# Variables of other programs that some settings are read from as well.
OTHER_NAMES = {
    "port": "PORT",
    "zmq_host": "SHARD_COORDINATOR_BIND_HOST",
    "zmq_port": "SHARD_COORDINATOR_BIND_PORT",
    "shard_lease_ms": "HEARTBEAT_TIMEOUT_SECONDS",
    "shard_sweep_ms": "HEARTBEAT_CHECK_INTERVAL_SECONDS",
}


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may change; the descriptions are also help texts and reference rows."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port of the HTTP API; 0 takes a free one.")
    ] = 7070
    store: Annotated[
        str,
        Meta(
            description="The store: sqlite:///FILE, or postgresql://USER@HOST/DATABASE (with "
            "?schema=NAME for another schema than `postgres_schema`)."
        ),
    ] = "sqlite:///rota.db"
    store_disk_low_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Free space of the disk with the SQLite file below which the coordinator "
            "warns: in its log (`store_disk_low`), in `/health` and on the dashboard. 0: never.",
        ),
    ] = 1024 * MEBIBYTE
    insecure: Annotated[
        bool,
        Meta(
            description="Listen beyond loopback without tokens; a warning is logged at every start."
        ),
    ] = False
    require_token: Annotated[
        bool, Meta(description="Require a token on loopback too, as behind a proxy.")
    ] = False
    tls_cert: Annotated[
        str | None,
        Meta(
            description="File with the certificate, in PEM form and with its chain: HTTP and "
            "WebSocket are served over TLS, on the same port. It needs `tls_key`."
        ),
    ] = None
    tls_key: Annotated[
        str | None,
        Meta(description="File with the private key of the certificate, in PEM form."),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest level that is logged."),
    ] = "info"
    log_format: Annotated[
        Literal["auto", "text", "json"],
        Meta(description="Log lines for people or for machines; auto: people on a terminal."),
    ] = "auto"

    replica_name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)] | None,
        Meta(
            description="Name of this coordinator among those that share its store; by default "
            "the host's name and some digits.",
        ),
    ] = None
    advertise: Annotated[
        Annotated[str, Meta(min_length=1, max_length=300)] | None,
        Meta(
            description="Address (HOST:PORT) where the other coordinators on the store reach this "
            "one; by default the address that it listens on.",
        ),
    ] = None
    leader_lease_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=60_000,
            description="How long a silent leader keeps the store before it is replaced; a leader "
            "whose process has ended is replaced at once.",
        ),
    ] = 5_000
    inbox_interval_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="How often the leader looks for tasks that applications have committed "
            "in their own transactions.",
        ),
    ] = 100

    history_keep_ms: Annotated[
        int,
        Meta(ge=0, description="How long finished tasks and runs are kept after their end."),
    ] = 7 * DAY_MS
    events_keep_ms: Annotated[int, Meta(ge=0, description="How long events are kept.")] = 7 * DAY_MS
    job_lease_ms: Annotated[
        int,
        Meta(ge=100, description="Lease of a job that was started over the jobs API."),
    ] = 15 * 60 * 1000
    unclaimed_lease_ms: Annotated[
        int,
        Meta(
            ge=1000,
            description="A task that its worker does not list as running for this long returns "
            "to its queue: the worker never received it.",
        ),
    ] = 30_000
    strategy: Annotated[
        Literal["weighted", "least-loaded", "power-of-two", "round-robin"],
        Meta(description="How one of several waiting workers is chosen."),
    ] = "weighted"
    scoring: Annotated[
        Literal["decayed", "lifetime"],
        Meta(description="Score over recent results with a slow start, or over all results."),
    ] = "decayed"
    degraded_after: Annotated[
        float,
        Meta(
            gt=0,
            description="A worker is degraded after this many heartbeat intervals without a "
            "heartbeat.",
        ),
    ] = 2.0
    unhealthy_after: Annotated[
        float,
        Meta(
            gt=0,
            description="A worker is removed after this many heartbeat intervals without a "
            "heartbeat.",
        ),
    ] = 3.0

    stuck_after_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            description="Report a queue as stuck when its tasks could not start for this long, "
            "and only a new worker or an operator can change that.",
        ),
    ] = 60_000
    outbound_allow: Annotated[
        str,
        Meta(
            description="Hosts (also *.DOMAIN), addresses and networks, separated by commas, that "
            "webhooks and pushed tasks may reach although they are not public."
        ),
    ] = ""
    outbound_only_allowed: Annotated[
        bool, Meta(description="Webhooks and pushed tasks reach only what `outbound_allow` lists.")
    ] = False
    outbound_ca: Annotated[
        str | None,
        Meta(
            description="File with certificate authorities, in PEM form, that are trusted for "
            "webhooks and pushed tasks besides those of the system."
        ),
    ] = None

    zmq_host: Annotated[str, Meta(description="Address to listen on for ZeroMQ.")] = "127.0.0.1"
    zmq_port: Annotated[
        Annotated[int, Meta(ge=0, le=65535)] | None,
        Meta(
            description="Port for ZeroMQ; 0 takes a free one. By default 5555, or no ZeroMQ if "
            "that port is taken.",
        ),
    ] = None
    zmq_keys: Annotated[
        str | None,
        Meta(
            description="File with the keys of the coordinator and its clients: ZeroMQ is "
            "encrypted, and each key speaks only for its own workers."
        ),
    ] = None
    zmq_max_connections: Annotated[
        int, Meta(ge=1, description="ZeroMQ connections at once; more are refused.")
    ] = 4_096
    shard_lease_ms: Annotated[
        int,
        Meta(ge=100, description="How long a member keeps its shards without a heartbeat."),
    ] = 15_000
    shard_sweep_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=10_000,
            description="How often leases of members and due rebalances are checked.",
        ),
    ] = SWEEP_MS
    shard_stuck_ms: Annotated[
        int,
        Meta(
            ge=100,
            description="A member that keeps a revoked shard for longer than this is stuck.",
        ),
    ] = 30_000
    shard_stuck: Annotated[
        Literal["evict", "force"],
        Meta(
            description="What a stuck member of protocol 1 loses: its membership (evict), or "
            "only the revoked shards (force)."
        ),
    ] = "evict"

    postgres_schema: Annotated[
        str, Meta(description="Schema of the tables on PostgreSQL; created if missing.")
    ] = "rota"
    postgres_readers: Annotated[
        int,
        Meta(ge=1, le=100, description="Reading connections to PostgreSQL, besides the writer."),
    ] = 8
    postgres_statement_ms: Annotated[
        int, Meta(ge=1_000, description="Timeout of a statement on PostgreSQL.")
    ] = 15_000

    max_body_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Largest request body; a larger one is refused with 413.",
        ),
    ] = 64 * MEBIBYTE
    max_payload_bytes: Annotated[
        int,
        Meta(
            ge=64,
            description="Largest payload, result or progress value; a larger one is refused with "
            "413.",
        ),
    ] = 4 * MEBIBYTE
    max_artifact_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Largest artifact of a run; a larger one is refused with 413.",
        ),
    ] = 256 * MEBIBYTE
    max_bodies_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Bytes of request bodies held at once, one caller up to half of them; more "
            "are refused with 429. At least twice `max_body_bytes`. Heartbeats, results and "
            "progress have as much again.",
        ),
    ] = 512 * MEBIBYTE
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            description="Requests at once, one caller up to 7/8 of them; more are refused with "
            "429. Heartbeats, results and progress have as many again.",
        ),
    ] = 4_096
    max_events: Annotated[
        int,
        Meta(
            ge=0,
            description="Largest number of events that are kept; the oldest are deleted first.",
        ),
    ] = 1_000_000
    max_sockets: Annotated[
        int,
        Meta(
            ge=0,
            description="WebSockets at once, one caller up to 7/8 of them; more are refused with "
            "429.",
        ),
    ] = 10_000
    max_frame_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Largest message on a WebSocket; a larger one closes the socket.",
        ),
    ] = 16 * MEBIBYTE
    max_values: Annotated[
        int,
        Meta(
            ge=0,
            description="Values in the key-value store, one token up to 7/8 and all but admins "
            "together up to 15/16 of them; more are refused with 429.",
        ),
    ] = 1_000_000
    max_values_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes of values in the key-value store, one token up to 7/8 and all but "
            "admins together up to 15/16 of them; more are refused with 429.",
        ),
    ] = 4 * 1024 * MEBIBYTE
    max_workers: Annotated[
        int,
        Meta(
            ge=1,
            description="Registered workers, by one caller up to 7/8 of them; more are refused "
            "with 429.",
        ),
    ] = 50_000
    max_attempt_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Bytes of the artifacts of one attempt; more are refused with 413.",
        ),
    ] = 4 * 1024 * MEBIBYTE
    max_artifacts_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Bytes of all artifacts, one token up to 7/8 and all but admins together "
            "up to 15/16 of them; more are refused with 429. Artifacts are deleted with their runs "
            "(`history_keep_ms`).",
        ),
    ] = 256 * 1024 * MEBIBYTE
    max_waiting: Annotated[
        int,
        Meta(
            ge=1,
            description="Changes that wait for their commit; beyond this number, new submissions "
            "are refused with 503 and a Retry-After.",
        ),
    ] = 100_000

    def __post_init__(self) -> None:
        if self.degraded_after > self.unhealthy_after:
            raise Invalid("degraded_after must not be above unhealthy_after; lower it")
        if self.tls_cert is not None and self.tls_key is None:
            raise Invalid("tls_key is missing: give the key of tls_cert", field="tls_key")
        if self.tls_key is not None and self.tls_cert is None:
            raise Invalid("tls_cert is missing: give the certificate of tls_key", field="tls_cert")


# The same fields without `__post_init__`, which checks all sources together.
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
    """Each field as a JSON schema, without the null of an optional one."""
    properties = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    return {name: _when_given(schema) for name, schema in properties.items()}


def _when_given(schema: dict[str, Any]) -> dict[str, Any]:
    given = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return {**schema, **given[0]} if given else schema


def allowed_values(field: str) -> str:
    """The values that a setting may have, in words."""
    schema = field_schemas()[field]
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    match schema["type"]:
        case "boolean":
            return "true or false"
        case "integer" if field.endswith(ENDING):
            return f"milliseconds{_bounds(schema)}, or a time such as {FORM}"
        case "integer":
            return f"an integer{_bounds(schema)}"
        case "number":
            return f"a number{_bounds(schema)}"
        case _:
            return f"a text{_lengths(schema)}"


def _bounds(schema: dict[str, Any], *, divisor: int = 1) -> str:
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum'] / divisor:.12g}"
    least = f"{schema['minimum'] / divisor:.12g}"
    if "maximum" in schema:
        return f" from {least} to {schema['maximum'] / divisor:.12g}"
    return f" of at least {least}"


def _lengths(schema: dict[str, Any]) -> str:
    if "maxLength" not in schema:
        return ""
    return f" of {schema['minLength']} to {schema['maxLength']} characters"


class _Given(NamedTuple):
    """The value of a setting, and what its source has of it."""

    name: str  # such as ROTA_PORT
    written: Any
    value: Any


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], *, folder: Path | None = None
) -> Settings:
    """Combine the sources; an error names the value, its source and what is allowed."""
    values: dict[str, Any] = {}
    values |= _checked(_from_pyproject(folder or Path()), "pyproject.toml [tool.rota]", strict=True)
    values |= _checked(_from_environment(environment), "the environment", strict=False)
    given = {
        name: _Given(f"--{name.replace('_', '-')}", value, value)
        for name, value in flags.items()
        if value is not None
    }
    values |= _checked(given, "the flags", strict=False)
    return msgspec.convert(values, Settings)


def _from_pyproject(folder: Path) -> dict[str, _Given]:
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
    return {name.replace("-", "_"): _Given(name, value, value) for name, value in section.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    found = _from_other_names(environment)
    for field in field_names():
        name = environment_name(field)
        if environment.get(name):
            found[field] = _Given(name, environment[name], environment[name])
    return found


def _from_other_names(environment: Mapping[str, str]) -> dict[str, _Given]:
    return {
        field: _Given(name, environment[name], _translated(field, name, environment[name]))
        for field, name in OTHER_NAMES.items()
        if environment.get(name)
    }


def _translated(field: str, name: str, text: str) -> Any:
    """The value of a setting for that of another program's variable."""
    if field == "zmq_host":
        return text.removeprefix("tcp://")
    if not name.endswith("_SECONDS"):
        return text
    try:
        number = round(float(text) * SECOND_MS)
    except (ValueError, OverflowError) as error:
        raise _refused(field, _Given(name, text, text), "the environment") from error
    # More frequent sweeps than asked for do no harm.
    return min(number, SWEEP_MS) if field == "shard_sweep_ms" else number


def _with_unit(field: str, value: Any) -> Any:
    """The value of a setting; a time may be written with its unit, as `7d`."""
    if not field.endswith(ENDING) or not isinstance(value, str):
        return value
    number = milliseconds_of(value)
    return value if number is None else number


def _checked(given: dict[str, _Given], source: str, *, strict: bool) -> dict[str, Any]:
    values = {}
    for field, one in given.items():
        value = {field: _with_unit(field, one.value)}
        try:
            values[field] = getattr(msgspec.convert(value, _Source, strict=strict), field)
        except msgspec.ValidationError as error:
            raise _refused(field, one, source) from error
    return values


def _refused(field: str, given: _Given, source: str) -> Invalid:
    if field not in field_names():
        hint = did_you_mean(field, field_names())
        return Invalid(f"{given.name} from {source} is not a setting{hint}", field=field)
    written = without_password(str(given.written)) if field == "store" else given.written
    allowed = allowed_values(field)
    if given.name.endswith("_SECONDS"):
        allowed = f"a number of seconds{_bounds(field_schemas()[field], divisor=SECOND_MS)}"
    return Invalid(
        f"{given.name} from {source} is not valid: {written!r}; give {allowed}", field=field
    )
