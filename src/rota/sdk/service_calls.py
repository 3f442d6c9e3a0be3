"""What can an operator ask of a coordinator about services? As `calls`, for that noun."""

import msgspec

from rota.messages.shards import MemberDrain, ServiceChange, ServicePage, ServiceView
from rota.sdk.requests import Call, decoder_of, get, path_at, post


def list_services() -> Call[ServicePage]:
    return get("/api/services", ServicePage)


def get_service(name: str) -> Call[ServiceView]:
    return get(path_at("services", name), ServiceView)


def configure_service(name: str, change: ServiceChange) -> Call[ServiceView]:
    """Set what the change names; a service that is not there is made."""
    return Call(
        method="PUT",
        path=path_at("services", name),
        decoder=decoder_of(ServiceView),
        body=msgspec.json.encode(change),
        is_repeatable=True,
    )


def drain_member(name: str, worker_id: str, *, draining: bool = True) -> Call[ServiceView]:
    """Have a member give up its shards, or let it have some again."""
    path = path_at("services", name, "members", worker_id, "drain")
    return post(path, ServiceView, MemberDrain(draining=draining), is_repeatable=True)
