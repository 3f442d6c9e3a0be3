"""What can be asked of a coordinator about scaling? As `calls`, for that noun."""

from collections.abc import Sequence
from typing import Any

from rota.messages import ScalePage
from rota.sdk.requests import Call, get


def get_scale(
    *,
    queues: Sequence[str] = (),
    tasks: Sequence[str] = (),
    target_ms: int | None = None,
    concurrency: int | None = None,
) -> Call[ScalePage]:
    """How many workers the work wants; of these queues and task names, or of all."""
    query: list[tuple[str, Any]] = [("queue", one) for one in queues]
    query += [("task", one) for one in tasks]
    query += [("target_ms", target_ms), ("concurrency", concurrency)]
    return get("/api/scale", ScalePage, query)
