"""What does a coordinator know of a service that its rows do not say?

Alone it may forget that: what was due is looked at anew, and who waited asks again. Where several
work on one service each has to know what the others put off and whom they keep waiting, so it is
kept with the service. And when others have changed a service, some of what this one knows stays
true: what passed between it and a member, and since when it has been listening.
"""

from dataclasses import replace

from msgspec import Struct

from rota.core.shards.service import Service
from rota.core.shards.talks import Revoking

MOST_DEPARTED = 1_000  # names of former members that are kept for the others


class Agenda(Struct, frozen=True, kw_only=True):
    rebalance_at_ms: int | None = None
    first_join_ms: int | None = None
    urgent_at_ms: int | None = None
    listening_until_ms: int | None = None
    waiting: dict[str, int] = {}  # members whose register is not answered yet, and since when
    departed: dict[str, tuple[str, ...]] = {}  # incarnations that are not let in again


def agenda_of(service: Service) -> Agenda:
    departed = service.departed
    if len(departed) > MOST_DEPARTED:
        departed = dict(list(departed.items())[-MOST_DEPARTED:])
    return Agenda(
        rebalance_at_ms=service.rebalance_at_ms,
        first_join_ms=service.first_join_ms,
        urgent_at_ms=service.urgent_at_ms,
        listening_until_ms=service.listening_until_ms,
        waiting={
            worker_id: talk.pending_since_ms
            for worker_id, talk in service.talks.items()
            if talk.pending_since_ms is not None
        },
        departed=dict(departed),
    )


def take_up(service: Service, agenda: Agenda) -> None:
    """Go on with what others have put off."""
    service.rebalance_at_ms = agenda.rebalance_at_ms
    service.first_join_ms = agenda.first_join_ms
    service.urgent_at_ms = agenda.urgent_at_ms
    service.listening_until_ms = agenda.listening_until_ms
    service.departed = dict(agenda.departed)
    for worker_id in service.members:
        since_ms = agenda.waiting.get(worker_id)
        if since_ms is not None or worker_id in service.talks:
            service.talks[worker_id].pending_since_ms = since_ms


def carry_over(before: Service, after: Service) -> None:
    """What stays true of a service that others have changed: `after` is how it stands now."""
    after.awake_since_ms = before.awake_since_ms
    after.swept_ms = before.swept_ms
    for worker_id, member in after.members.items():
        known, talk = before.members.get(worker_id), before.talks.get(worker_id)
        if known is not None and talk is not None and known.incarnation == member.incarnation:
            after.talks[worker_id] = replace(talk)
    for worker_id, several in after.revoking.items():
        earlier = {asked.generation: asked for asked in before.revoking.get(worker_id, ())}
        beats = after.talks[worker_id].beats
        after.revoking[worker_id] = tuple(
            [_carried(earlier.get(asked.generation), asked, beats) for asked in several]
        )
    for worker_id in after.members:
        if _is_told_the_same(before, after, worker_id):
            after.note_unchanged(worker_id, before.changed_in(worker_id))


def _carried(known: Revoking | None, asked: Revoking, beats: int) -> Revoking:
    """Since when somebody has been asked; beats from before others asked are no answer to that."""
    if known is None:
        return replace(asked, beats=beats)
    return replace(asked, since_ms=known.since_ms, beats=known.beats)


def to_be_told(before: Service, after: Service) -> set[str]:
    """Members to whom others have given, or from whom they have taken, something."""
    return {
        worker_id
        for worker_id, member in after.members.items()
        if not _is_told_the_same(before, after, worker_id)
        or _is_fenced_anew(before, worker_id, member.fenced)
    } | _answered(before, after)


def _is_told_the_same(before: Service, after: Service, worker_id: str) -> bool:
    return before.told(worker_id) == after.told(worker_id) and before.revoked_from(
        worker_id
    ) == after.revoked_from(worker_id)


def _is_fenced_anew(before: Service, worker_id: str, fenced: str | None) -> bool:
    known = before.members.get(worker_id)
    return known is not None and known.fenced != fenced


def _answered(before: Service, after: Service) -> set[str]:
    """Those that wait here for the answer to their register, and have been answered elsewhere."""
    return {
        worker_id
        for worker_id, talk in before.talks.items()
        if talk.pending_since_ms is not None
        and worker_id in after.members
        and after.talks[worker_id].pending_since_ms is None
    }
