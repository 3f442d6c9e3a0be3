"""A durable work coordinator for Python.

The names a program needs, loaded when first used: `import rota` alone costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.core.tasks import Backoff as Backoff
    from rota.core.tasks import TaskError as TaskError
    from rota.core.tasks import TaskState as TaskState
    from rota.errors import Invalid as Invalid
    from rota.errors import InvalidWorkflow as InvalidWorkflow
    from rota.errors import LockLost as LockLost
    from rota.errors import NotFound as NotFound
    from rota.errors import Overloaded as Overloaded
    from rota.errors import RotaError as RotaError
    from rota.errors import StaleEpoch as StaleEpoch
    from rota.errors import Unavailable as Unavailable
    from rota.errors import VersionConflict as VersionConflict
    from rota.sdk.app import Rota as Rota
    from rota.sdk.client import Client as Client
    from rota.sdk.context import TaskContext as TaskContext
    from rota.sdk.context import current as current
    from rota.sdk.handles import TaskCancelled as TaskCancelled
    from rota.sdk.handles import TaskFailed as TaskFailed
    from rota.sdk.handles import TaskHandle as TaskHandle
    from rota.sdk.locks import Lock as Lock
    from rota.sdk.locks import LockNotAcquired as LockNotAcquired
    from rota.sdk.memory import Memory as Memory
    from rota.sdk.outcomes import Cancelled as Cancelled
    from rota.sdk.outcomes import Discard as Discard
    from rota.sdk.outcomes import Retry as Retry
    from rota.sdk.outcomes import Snooze as Snooze
    from rota.sdk.pending import PendingHandle as PendingHandle
    from rota.sdk.replaying import replay as replay
    from rota.sdk.runs import RunCancelled as RunCancelled
    from rota.sdk.runs import RunFailed as RunFailed
    from rota.sdk.runs import RunHandle as RunHandle
    from rota.sdk.shards.held import HeldShard as HeldShard
    from rota.sdk.shards.worker import ShardWorker as ShardWorker
    from rota.sdk.tasks import Task as Task
    from rota.sdk.worker import StopReason as StopReason
    from rota.sdk.worker import Worker as Worker
    from rota.sdk.workflows import Workflow as Workflow

_HOMES = {
    "Backoff": "rota.core.tasks",
    "Cancelled": "rota.sdk.outcomes",
    "Client": "rota.sdk.client",
    "Discard": "rota.sdk.outcomes",
    "HeldShard": "rota.sdk.shards.held",
    "Invalid": "rota.errors",
    "InvalidWorkflow": "rota.errors",
    "Lock": "rota.sdk.locks",
    "LockLost": "rota.errors",
    "LockNotAcquired": "rota.sdk.locks",
    "Memory": "rota.sdk.memory",
    "NotFound": "rota.errors",
    "Overloaded": "rota.errors",
    "PendingHandle": "rota.sdk.pending",
    "Retry": "rota.sdk.outcomes",
    "Rota": "rota.sdk.app",
    "RotaError": "rota.errors",
    "RunCancelled": "rota.sdk.runs",
    "RunFailed": "rota.sdk.runs",
    "RunHandle": "rota.sdk.runs",
    "ShardWorker": "rota.sdk.shards.worker",
    "Snooze": "rota.sdk.outcomes",
    "StaleEpoch": "rota.errors",
    "StopReason": "rota.sdk.worker",
    "Task": "rota.sdk.tasks",
    "TaskCancelled": "rota.sdk.handles",
    "TaskContext": "rota.sdk.context",
    "TaskError": "rota.core.tasks",
    "TaskFailed": "rota.sdk.handles",
    "TaskHandle": "rota.sdk.handles",
    "TaskState": "rota.core.tasks",
    "Unavailable": "rota.errors",
    "VersionConflict": "rota.errors",
    "Worker": "rota.sdk.worker",
    "Workflow": "rota.sdk.workflows",
    "current": "rota.sdk.context",
    "replay": "rota.sdk.replaying",
}

__all__ = [  # noqa: PLE0604 - the table above is the one list of names
    *_HOMES,
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, rare

        try:
            return version("rota")
        except PackageNotFoundError:  # run from a source tree that is not installed
            return "0.0.0"
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
