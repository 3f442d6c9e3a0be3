"""API calls about limits of keys, and about the settings of queues."""

from rota.core.flows.model import LimitKind
from rota.messages.limits import (
    KeyLimitDeleted,
    KeyLimitPage,
    KeyLimitPut,
    KeyLimitView,
    LimitConsume,
    LimitConsumed,
    LimitRecountView,
    QueuePatch,
    TenantPage,
)
from rota.messages.tasks import QueueView
from rota.sdk.client.requests import ApiCall, delete, get, patch, path_at, post, put


def list_limits(
    *,
    kind: LimitKind | None = None,
    prefix: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> ApiCall[KeyLimitPage]:
    wanted = {"kind": kind, "prefix": prefix, "limit": limit, "cursor": cursor}
    return get("/api/limits", KeyLimitPage, wanted.items())


def get_limit(key: str) -> ApiCall[KeyLimitView]:
    return get(path_at("limits", key), KeyLimitView)


def put_limit(key: str, request: KeyLimitPut) -> ApiCall[KeyLimitView]:
    """Set a limit, and pin it unless told otherwise."""
    return put(path_at("limits", key), KeyLimitView, request)


def delete_limit(key: str) -> ApiCall[KeyLimitDeleted]:
    """Unpin a limit: what tasks declared last counts again."""
    return delete(path_at("limits", key), KeyLimitDeleted)


def consume_limit(key: str, request: LimitConsume) -> ApiCall[LimitConsumed]:
    """Count a use of a rate outside tasks, if it is free now."""
    return post(path_at("limits", key, "consume"), LimitConsumed, request)


def recount_limits() -> ApiCall[LimitRecountView]:
    """Recount all limits from leases and queued tasks."""
    return get("/api/recount/limits", LimitRecountView)


def change_queue(queue: str, change: QueuePatch) -> ApiCall[QueueView]:
    """Change the settings of a queue; what is not given stays, None resets."""
    return patch(path_at("queues", queue), QueueView, change)


def list_tenants(queue: str, *, limit: int | None = None) -> ApiCall[TenantPage]:
    """The tenants of a queue that have the most tasks."""
    return get(path_at("queues", queue, "tenants"), TenantPage, {"limit": limit}.items())
