"""The topics that a caller can subscribe to; a topic's type names the type of its subscription."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from msgspec import Struct

from rota.core.decisions import TellCancelled
from rota.core.events import EventFilter, LoggedEvent
from rota.core.ids import TaskId
from rota.core.replies import Granted
from rota.core.shards.members import Assignment
from rota.engine.commit.request import EndNotice
from rota.engine.dispatch.lease_rows import GrantedRows
from rota.engine.dispatch.subscription import LeaseSubscription
from rota.engine.events.log import Sight
from rota.engine.events.stream import EventSubscription
from rota.engine.waiters import Waiter
from rota.errors import RotaError

S_co = TypeVar("S_co", covariant=True)

Unsubscribe = Callable[[], None]


class TopicBase(Struct, Generic[S_co], frozen=True):
    """A topic that a caller can subscribe to; `S_co` is the type of the subscription."""


class Leases(TopicBase[LeaseSubscription], frozen=True, kw_only=True):
    """Leases for a streaming worker, granted for as long as the worker has room."""

    worker_id: str
    incarnation: int
    on_granted: Callable[[Granted | GrantedRows], int]  # returns for how many more it has room
    on_ended: Callable[[RotaError], None]  # called when the coordinator refuses the worker


class EventsAfter(TopicBase[EventSubscription], frozen=True):
    """Every event after a sequence number, including future ones."""

    wanted: EventFilter
    after: int
    sight: Sight | None = None


class CommittedEvents(TopicBase[Unsubscribe], frozen=True):
    """The events of each commit from now on. The coordinator calls `on_end` once, before a stop."""

    on_events: Callable[[Sequence[LoggedEvent]], None]
    on_end: Callable[[], None] = lambda: None


class Assignments(TopicBase[Unsubscribe], frozen=True):
    """All pushed assignments of each commit.

    A push may overtake the reply to an earlier call on its way to a member. So the sender must not
    send a lower generation than it has sent before.
    """

    on_assignments: Callable[[Sequence[Assignment]], None]


class Cancellations(TopicBase[Unsubscribe], frozen=True):
    """The leases of tasks that a commit has cancelled."""

    on_cancelled: Callable[[Sequence[TellCancelled]], None]


class SessionNews(TopicBase[Unsubscribe], frozen=True):
    """The connected sessions that a commit has notifications for."""

    on_sessions: Callable[[AbstractSet[str]], None]
    connected: Callable[[], Iterable[str]] = lambda: ()


class EndOfTask(TopicBase[AbstractContextManager[Waiter[EndNotice]]], frozen=True):
    """The end of one task or run."""

    task_id: TaskId


class NewLines(TopicBase[AbstractContextManager[Waiter[TaskId]]], frozen=True):
    """New log lines of one task, or its end."""

    task_id: TaskId


class NextAssignment(TopicBase[AbstractContextManager[Waiter[Assignment]]], frozen=True):
    """The first assignment of one member that is newer than a generation."""

    service: str
    worker_id: str
    after_generation: int


Topic = (
    Leases
    | EventsAfter
    | CommittedEvents
    | Assignments
    | Cancellations
    | SessionNews
    | EndOfTask
    | NewLines
    | NextAssignment
)
