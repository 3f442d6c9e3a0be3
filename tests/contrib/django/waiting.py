"""Wait for the end of a task of Django."""

from contextlib import suppress
from typing import Any

from rota import PendingHandle, TaskCancelled, TaskFailed
from rota.contrib.django.backend import RotaBackend
from rota.sdk.encoding import decoder_of

PATIENCE_S = 30.0


def finished(backend: RotaBackend, result: Any) -> Any:
    """The result, as soon as its task has ended."""
    handle: PendingHandle[Any] = PendingHandle(
        result.id, lambda: backend.rota.client, decoder_of(Any)
    )
    with suppress(TaskFailed, TaskCancelled):
        handle.result(PATIENCE_S)
    result.refresh()
    return result
