"""What tests ask of the event log again and again."""

from rota.core.events import EVERYTHING, EventFilter, LoggedEvent, types_of
from tests.engine.running import Engine

MOST = 10_000


async def told(engine: Engine, *types: str, after: int = 0) -> list[LoggedEvent]:
    """All notices of these types, the oldest first."""
    wanted = EventFilter(types=types_of(types)) if types else EVERYTHING
    return (await engine.coordinator.queries.events.after(after, wanted, limit=MOST)).items


async def types_told(engine: Engine, *, after: int = 0) -> list[str]:
    return [one.type for one in await told(engine, after=after)]
