"""A durable work coordinator for Python.

The names that programs import. Each is loaded when it is first used: `import rota` is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.core.flows.model import Concurrency as Concurrency
    from rota.core.flows.model import Rate as Rate
    from rota.core.tasks.model import Backoff as Backoff
    from rota.core.tasks.model import TaskError as TaskError
    from rota.core.tasks.model import TaskState as TaskState
    from rota.core.tasks.unique import Debounce as Debounce
    from rota.core.tasks.unique import Unique as Unique
    from rota.errors import Invalid as Invalid
    from rota.errors import InvalidWorkflow as InvalidWorkflow
    from rota.errors import LockLost as LockLost
    from rota.errors import NotFound as NotFound
    from rota.errors import Overloaded as Overloaded
    from rota.errors import RotaError as RotaError
    from rota.errors import StaleEpoch as StaleEpoch
    from rota.errors import Unavailable as Unavailable
    from rota.errors import UniqueConflict as UniqueConflict
    from rota.errors import VersionConflict as VersionConflict
    from rota.sdk.app.app import Rota as Rota
    from rota.sdk.client.client import Client as Client
    from rota.sdk.context import TaskContext as TaskContext
    from rota.sdk.context import current as current
    from rota.sdk.functions.context import BlockingRun as BlockingRun
    from rota.sdk.functions.context import Run as Run
    from rota.sdk.functions.context import current_run as current_run
    from rota.sdk.functions.errors import AmbiguousStep as AmbiguousStep
    from rota.sdk.functions.errors import OperationFailed as OperationFailed
    from rota.sdk.functions.errors import StepOutcomeUnknown as StepOutcomeUnknown
    from rota.sdk.functions.handles import FunctionHandle as FunctionHandle
    from rota.sdk.functions.immediate import ReceivedMessage as ReceivedMessage
    from rota.sdk.functions.operations import ApprovalRejected as ApprovalRejected
    from rota.sdk.functions.workflow import CodeWorkflow as CodeWorkflow
    from rota.sdk.groups.handles import ChainHandle as ChainHandle
    from rota.sdk.groups.handles import GroupFailed as GroupFailed
    from rota.sdk.groups.handles import GroupHandle as GroupHandle
    from rota.sdk.groups.handles import MemberOutcome as MemberOutcome
    from rota.sdk.handles import PendingHandle as PendingHandle
    from rota.sdk.handles import TaskCancelled as TaskCancelled
    from rota.sdk.handles import TaskFailed as TaskFailed
    from rota.sdk.handles import TaskHandle as TaskHandle
    from rota.sdk.kv import Memory as Memory
    from rota.sdk.locks import Lock as Lock
    from rota.sdk.locks import LockNotAcquired as LockNotAcquired
    from rota.sdk.middleware.hooks import EnqueuedCall as EnqueuedCall
    from rota.sdk.middleware.hooks import HandlerCall as HandlerCall
    from rota.sdk.middleware.hooks import Middleware as Middleware
    from rota.sdk.middleware.hooks import StepExecution as StepExecution
    from rota.sdk.outcomes import Cancelled as Cancelled
    from rota.sdk.outcomes import Discard as Discard
    from rota.sdk.outcomes import RateLimited as RateLimited
    from rota.sdk.outcomes import Retry as Retry
    from rota.sdk.outcomes import Snooze as Snooze
    from rota.sdk.replay import replay as replay
    from rota.sdk.run import RunCancelled as RunCancelled
    from rota.sdk.run import RunFailed as RunFailed
    from rota.sdk.run import RunHandle as RunHandle
    from rota.sdk.shards.held import HeldShard as HeldShard
    from rota.sdk.shards.worker import ShardWorker as ShardWorker
    from rota.sdk.task import Batch as Batch
    from rota.sdk.task import Task as Task
    from rota.sdk.worker.stopping import StopReason as StopReason
    from rota.sdk.worker.worker import Worker as Worker
    from rota.sdk.workflow import Workflow as Workflow

_NAMES = {
    "rota.core.flows.model": "Concurrency Rate",
    "rota.core.tasks.model": "Backoff TaskError TaskState",
    "rota.core.tasks.unique": "Debounce Unique",
    "rota.errors": "Invalid InvalidWorkflow LockLost NotFound Overloaded RotaError StaleEpoch "
    "Unavailable UniqueConflict VersionConflict",
    "rota.sdk.app.app": "Rota",
    "rota.sdk.client.client": "Client",
    "rota.sdk.context": "TaskContext current",
    "rota.sdk.functions.context": "BlockingRun Run current_run",
    "rota.sdk.functions.errors": "AmbiguousStep OperationFailed StepOutcomeUnknown",
    "rota.sdk.functions.handles": "FunctionHandle",
    "rota.sdk.functions.immediate": "ReceivedMessage",
    "rota.sdk.functions.operations": "ApprovalRejected",
    "rota.sdk.functions.workflow": "CodeWorkflow",
    "rota.sdk.groups.handles": "ChainHandle GroupFailed GroupHandle MemberOutcome",
    "rota.sdk.handles": "PendingHandle TaskCancelled TaskFailed TaskHandle",
    "rota.sdk.kv": "Memory",
    "rota.sdk.locks": "Lock LockNotAcquired",
    "rota.sdk.middleware.hooks": "EnqueuedCall HandlerCall Middleware StepExecution",
    "rota.sdk.outcomes": "Cancelled Discard RateLimited Retry Snooze",
    "rota.sdk.replay": "replay",
    "rota.sdk.run": "RunCancelled RunFailed RunHandle",
    "rota.sdk.shards.held": "HeldShard",
    "rota.sdk.shards.worker": "ShardWorker",
    "rota.sdk.task": "Batch Task",
    "rota.sdk.worker.stopping": "StopReason",
    "rota.sdk.worker.worker": "Worker",
    "rota.sdk.workflow": "Workflow",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

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
