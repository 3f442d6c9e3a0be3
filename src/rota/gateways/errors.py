"""Error mapping, the same for every gateway: what a caller may know of an error."""

from typing import Any

from rota.errors import Internal, RotaError, StoreError, Unavailable


def presentable(error: Exception) -> RotaError:
    """The error as its caller sees it: a caller's mistake in full, our own failure not at all."""
    if isinstance(error, StoreError):
        return Unavailable("the store cannot be used at the moment")
    if isinstance(error, RotaError):
        return error
    return Internal("an internal error; the coordinator's log has the reason")


def presented(error: Exception, log: Any, event: str, **fields: Any) -> RotaError:
    """The error as its caller sees it; a failure of our own is logged under `event`."""
    shown = presentable(error)
    if isinstance(error, StoreError) or isinstance(shown, Internal):
        log.error(event, **fields, exc_info=error)
    return shown
