"""Stuck queues: those whose tasks cannot start for a time, without a worker or an operator.

The reasons are those of `wait_reasons`. A queue that an operator has paused is not stuck: that is
what the operator asked for.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from rota.core import limits
from rota.core.dispatch.wait_reasons import NO_WORKERS, Explanation, no_worker_for_queue
from rota.core.events import Event
from rota.core.replies import CommandBase, Done
from rota.core.tasks.model import Lane

PAUSED = "queue_paused"


class StuckLane(Struct, frozen=True, kw_only=True):
    """The tasks of a queue that cannot start; of several kinds, those that are the most."""

    queue: str
    name: str  # of the tasks
    queued: int
    code: str
    text: str


class NoteStuckQueues(CommandBase[Done], frozen=True, kw_only=True, tag="NoteStuckQueues"):
    """Report the queues that have become stuck, and those that are stuck no more."""

    stuck: tuple[StuckLane, ...] = ()
    freed: tuple[str, ...] = ()


def stuck_queues(lanes: Iterable[tuple[Lane, int, Explanation]]) -> dict[str, StuckLane]:
    """The queues that cannot start tasks now, given each lane, how many tasks wait, and why."""
    found: dict[str, StuckLane] = {}
    for lane, queued, reason in lanes:
        if not queued or not reason.is_stuck or reason.code == PAUSED:
            continue
        # The event is shown to tokens of the queue, which must not hear of workers of others.
        why = no_worker_for_queue(lane.queue) if reason is NO_WORKERS else reason
        known = found.get(lane.queue)
        if known is None or known.queued < queued:
            found[lane.queue] = StuckLane(
                queue=lane.queue, name=lane.name, queued=queued, code=why.code, text=why.text
            )
    return found


def note(
    known: Mapping[str, int], command: NoteStuckQueues, now_ms: int
) -> tuple[dict[str, int], list[Event]]:
    """The stuck queues after a look, with since when they are, and the events about the changes."""
    after = dict(known)
    events: list[Event] = []
    for one in command.stuck:
        if one.queue not in after:
            after[one.queue] = now_ms
            data = {
                "reason": one.code,
                "text": one.text[: limits.MAX_EVENT_TEXT],
                "name": one.name,
                "queued": one.queued,
            }
            events.append(Event(type="queue-stuck", subject=one.queue, data=data))
    for queue in command.freed:
        since_ms = after.pop(queue, None)
        if since_ms is not None:
            data = {"stuck_for_ms": max(0, now_ms - since_ms)}
            events.append(Event(type="queue-unstuck", subject=queue, data=data))
    return after, events
