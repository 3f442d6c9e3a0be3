"""The page on limits: those of the contract, those an operator moves, and the rules' numbers."""

from collections.abc import Sequence
from types import ModuleType

import msgspec

from reference_pages.markdown import code, document, measured, sentence, table
from reference_pages.sources import comments
from rota import settings
from rota.core import limits
from rota.core.shards.members import ShardPolicy
from rota.core.workers.circuit_breaker import BreakerPolicy
from rota.core.workers.eviction_guards import EvictionPolicy
from rota.core.workers.model import HealthPolicy
from rota.core.workers.scoring import ScoringPolicy
from rota.gateways.zeromq import binding

POLICIES: dict[str, type[msgspec.Struct]] = {
    "Health of workers": HealthPolicy,
    "Score of workers": ScoringPolicy,
    "Breakers": BreakerPolicy,
    "Guards against mass eviction": EvictionPolicy,
    "Shards of services": ShardPolicy,
}
OF_ZEROMQ = (
    "MAX_MESSAGE_BYTES",
    "MAX_MESSAGE_FRAMES",
    "MAX_UNFINISHED_BYTES",
    "MAX_UNFINISHED_BYTES_TOTAL",
    "MAX_UNFINISHED_GROWTH_BYTES",
    "MAX_MESSAGE_MS",
    "MAX_SILENCE_MS",
    "RECEIVE_BUFFER_BYTES",
    "MOST_UNSENT",
    "MOST_UNREAD",
    "HANDSHAKE_MS",
)


def page() -> str:
    return document(
        "# Limits",
        "Everything has a limit, and every limit a name. What is over one is refused by name: "
        "with 400 or 413 when the request can never fit, with 429 or 503 and `Retry-After` when "
        "it may fit later.",
        "## Of the contract",
        "The same on every coordinator.",
        table(("limit", "value", "of what"), _constants(limits, _uppercase(limits))),
        "## Over ZeroMQ",
        "Of one connection. How many there may be is a setting.",
        table(("limit", "value", "of what"), _constants(binding, OF_ZEROMQ)),
        "## Moved by settings",
        "See [Settings](settings.md).",
        table(("setting", "default", "meaning"), _setting_limits()),
        "## Numbers in the rules",
        "Their meaning is explained in "
        "[Workers and their health](../explanation/workers-and-health.md) and "
        "[Shards: one owner at a time](../explanation/shards.md). "
        "`degraded_after`, `unhealthy_after` and `lifetime` (by `scoring`) can be set, and of "
        "shards `lease_ms` (with it `heartbeat_interval_ms`, a third of it), `sweep_ms`, "
        "`stuck_ms` and `when_stuck`, by the settings that begin with `shard_`; the others are "
        "fixed.",
        *(block for title, policy in POLICIES.items() for block in _policy(title, policy)),
    )


def _uppercase(module: ModuleType) -> list[str]:
    return [name for name in comments(module) if name.isupper()]


def _constants(module: ModuleType, names: Sequence[str]) -> list[tuple[str, ...]]:
    said = comments(module)
    undocumented = [name for name in names if not said[name]]
    if undocumented:
        raise SystemExit(f"{module.__name__}: a comment is missing behind {undocumented}")
    return [
        (code(name), measured(name, getattr(module, name)), sentence(said[name])) for name in names
    ]


def _setting_limits() -> list[tuple[str, ...]]:
    schemas = settings.field_schemas()
    return [
        (code(name), measured(name, schemas[name]["default"]), schemas[name]["description"])
        for name in settings.field_names()
        if name.startswith("max_")
    ]


def _policy(title: str, policy: type[msgspec.Struct]) -> tuple[str, str]:
    said = comments(policy)
    rows = [
        (code(field.name), measured(field.name, field.default), sentence(said[field.name]))
        for field in msgspec.structs.fields(policy)
        if not isinstance(field.default, msgspec.Struct)
    ]
    return f"### {title}", table(("number", "value", "meaning"), rows)
