"""Events over HTTP, as a list or as a stream."""

import asyncio
from functools import partial
from typing import Annotated

from msgspec import Meta

from rota.core import limits
from rota.core.access import Action, Caller
from rota.core.events import EventFilter, LoggedEvent, may_see, sees_everything, types_of
from rota.engine.events.log import Passage, Sight
from rota.engine.topics import EventsAfter
from rota.gateways.http import event_streams
from rota.gateways.http.routing.endpoint import HttpCall, Routes
from rota.gateways.http.routing.responses import StreamedResponse
from rota.gateways.validation import invalid_field
from rota.messages import EventPage, EventView, Request, WaitMs

Number = Annotated[int, Meta(ge=0, le=2**53)]
SubjectText = Annotated[str, Meta(max_length=limits.MAX_KEY_LENGTH)]

routes = Routes("Events")


class EventsQuery(Request, frozen=True, kw_only=True):
    after: Annotated[
        Number | None,
        Meta(
            description="The number of the last event already known. Without it a list begins with "
            "the oldest that is stored, and a stream with what happens next."
        ),
    ] = None
    last: Annotated[
        Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] | None,
        Meta(description="Begin with this many of the newest instead; not together with `after`."),
    ] = None
    type: Annotated[
        tuple[Annotated[str, Meta(max_length=limits.MAX_NAME_LENGTH)], ...],
        Meta(
            description="Any of these types; repeated or comma separated. One may end with `*`: "
            "`task-*`."
        ),
    ] = ()
    subject: Annotated[
        SubjectText | None, Meta(description="Only about this task, worker, run, …")
    ] = None
    prefix: Annotated[
        SubjectText, Meta(description="Only about ids or names that begin with this.")
    ] = ""
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)], Meta(description="Of a list.")
    ] = limits.DEFAULT_PAGE
    wait_ms: Annotated[
        WaitMs,
        Meta(description="Of a list: if there is no event, wait for one for this long."),
    ] = 0


EventsCall = HttpCall[None, EventsQuery]


@routes.get("/api/events", Action.READ)
async def listing(call: EventsCall) -> EventPage | StreamedResponse:
    """List events, or follow them.

    In the order of their numbers, the oldest first. With `Accept: text/event-stream` as a
    stream of server-sent events that goes on: each has its number as `id`, so a reader that
    comes back with `Last-Event-ID` misses nothing. A token that is bound to queues or services
    sees the events of those.
    """
    query = call.query
    if query.last is not None and query.after is not None:
        raise invalid_field("last", "give this or after, not both")
    types = types_of(one for given in query.type for one in given.split(","))
    wanted = EventFilter(types=types, subject=query.subject, prefix=query.prefix)
    sight = sight_of(call.caller)
    if event_streams.is_wanted(call.headers):
        return await _stream(call, wanted, sight)
    log = call.coordinator.queries.events
    if query.last is not None:
        return _page(await log.newest(wanted, limit=query.last, sight=sight))
    after = query.after or 0
    await _check_known(call, after, "after")
    passage = await log.after(after, wanted, limit=query.limit, sight=sight)
    if not passage.items and query.wait_ms:
        passage = await call.while_connected(_next(call, wanted, sight, passage))
    return _page(passage)


def sight_of(caller: Caller) -> Sight | None:
    """The filter of the events that this caller may see; None: all of them."""
    return None if sees_everything(caller) else lambda event: may_see(caller, event)


async def _check_known(call: EventsCall, after: int, field: str) -> None:
    """Refuse a number beyond the log: it is from another log, and would wait without end."""
    if after > call.coordinator.last_seq:
        # The store may be a commit ahead of what was handed out.
        last_seq = (await call.coordinator.queries.events.bounds()).last_seq
        if after > last_seq:
            raise invalid_field(
                field, f"the last event is {last_seq}; this number is from another log"
            )


# --- as a list ----------------------------------------------------------------------------------


async def _next(
    call: EventsCall, wanted: EventFilter, sight: Sight | None, before: Passage
) -> Passage:
    """The events after an empty passage, if any happens in time."""
    with call.coordinator.subscribe(EventsAfter(wanted, before.position, sight)) as subscription:
        found: list[LoggedEvent] = []
        try:
            async with asyncio.timeout(call.query.wait_ms / 1000):
                found = await subscription.take(call.query.limit)
        except TimeoutError:
            pass
        last_seq = max(call.coordinator.last_seq, subscription.position)
        return Passage(found, subscription.position, before.oldest_seq, last_seq)


def _page(passage: Passage) -> EventPage:
    is_more = passage.position < passage.last_seq
    return EventPage(
        items=[view(one) for one in passage.items],
        next_cursor=str(passage.position) if is_more else None,
        next_after=passage.position,
        oldest_seq=passage.oldest_seq,
        last_seq=passage.last_seq,
    )


def view(event: LoggedEvent) -> EventView:
    return EventView(
        seq=event.seq, at_ms=event.at_ms, type=event.type, subject=event.subject, data=event.data
    )


# --- as a stream --------------------------------------------------------------------------------


async def _stream(call: EventsCall, wanted: EventFilter, sight: Sight | None) -> StreamedResponse:
    coordinator, query = call.coordinator, call.query
    call.reservation.take(call.services.quotas.event_streams)
    # The position of a returning reader counts for more than its query.
    known = event_streams.last_event_id(call.headers)
    after = query.after if known is None else known
    first: list[LoggedEvent] = []
    oldest_seq = 0
    if after is not None:
        await _check_known(call, after, "after" if known is None else "Last-Event-ID")
        oldest_seq = (await coordinator.queries.events.bounds()).oldest_seq
    elif query.last is not None:
        passage = await coordinator.queries.events.newest(wanted, limit=query.last, sight=sight)
        first, after = passage.items, passage.position
    else:
        after = coordinator.last_seq
    follow = partial(coordinator.subscribe, EventsAfter(wanted, after, sight))
    opening = event_streams.opening(after, first, oldest_seq=oldest_seq)
    return StreamedResponse(
        event_streams.pieces(
            opening, follow, call.receive, caller=call.caller, uses=call.services.authenticator.uses
        ),
        size=None,
        media_type=event_streams.MEDIA_TYPE,
        headers=(("cache-control", "no-store"), ("x-accel-buffering", "no")),
    )
