"""Streaming workers at a socket: what each of their messages leads to.

No message waits for a commit before the next one is read, and none has a task of its own: what it
asks for is handed to the coordinator, and the reply is sent by whatever brings the answer.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from rota.core import access
from rota.core.access import Action
from rota.core.events import Heartbeat, Progress, ReportProgress, ReportResults, Result
from rota.core.replies import Beat, Outcomes, Registered
from rota.core.values import check_value
from rota.errors import Invalid, StaleIncarnation, WorkerNotFound
from rota.gateways.http.bodies import invalid_field
from rota.gateways.http.problems import presentable
from rota.gateways.http.reports import task_error
from rota.gateways.http.work import check_queues, registration_of
from rota.gateways.websocket.routing import COORDINATOR, SILENT, Call, Route
from rota.gateways.websocket.streaming_workers import Stream, give_back
from rota.messages import WorkerRegistration, streams
from rota.messages.sessions import MSGPACK, UI, FrameError, Outgoing, is_given
from rota.messages.streams import (
    StreamBeat,
    StreamBeatAnswer,
    StreamCredit,
    StreamNoted,
    StreamOpened,
    StreamProgress,
    StreamResults,
    StreamResume,
)

_is_json = msgspec.json.Decoder(Raw).decode

# --- coming -------------------------------------------------------------------------------------


async def open_stream(call: Call) -> StreamOpened:
    _need_packing(call)
    event = registration_of(call.read(WorkerRegistration), call.caller)
    reply = await call.coordinator.handle(event)
    assert isinstance(reply, Registered)
    worker = reply.worker
    call.desk.streams.open(
        call.connection, worker.id, worker.incarnation, worker.heartbeat_interval_ms
    )
    return StreamOpened(
        worker_id=worker.id,
        incarnation=worker.incarnation,
        heartbeat_interval_ms=worker.heartbeat_interval_ms,
        lease_ms=reply.lease_ms,
        max_frame_bytes=call.desk.settings.max_frame_bytes,
    )


async def resume_stream(call: Call) -> StreamOpened:
    _need_packing(call)
    asked = call.read(StreamResume)
    await _check_worker(call, asked.worker_id)
    beat = await call.coordinator.handle(
        Heartbeat(
            worker_id=asked.worker_id, incarnation=asked.incarnation, running=tuple(asked.running)
        )
    )
    assert isinstance(beat, Beat)
    # Before the look at what it has: from here on an earlier stream is given nothing more.
    stream = call.desk.streams.open(
        call.connection, asked.worker_id, asked.incarnation, beat.heartbeat_interval_ms
    )
    running = set(asked.running)
    held = await call.coordinator.queries.sessions.held(asked.incarnation)
    lost_on_the_way = [(task.id, task.fence) for task in held if task.id not in running]
    give_back(call.coordinator, stream, lost_on_the_way)
    return StreamOpened(
        worker_id=asked.worker_id,
        incarnation=asked.incarnation,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        lease_ms=beat.lease_ms,
        max_frame_bytes=call.desk.settings.max_frame_bytes,
        cancel=[*beat.cancel],
        lost=[*beat.lost],
    )


def _need_packing(call: Call) -> None:
    if call.connection.codec.subprotocol != MSGPACK:
        raise Invalid(f"streams are for sockets of the subprotocol {MSGPACK!r}", field="type")


async def _check_worker(call: Call, worker_id: str) -> None:
    access.check_worker(call.caller, worker_id)
    if call.caller.queues is not None:
        figures = await call.coordinator.queries.worker(worker_id)
        if figures is None:
            raise WorkerNotFound(worker_id)
        check_queues(call.caller, figures.worker.queues)


def _stream(call: Call) -> Stream:
    stream = call.desk.streams.of(call.connection)
    if stream is None:
        raise Invalid(f"no stream is open on this socket: send {streams.OPEN!r} first")
    return stream


# --- working ------------------------------------------------------------------------------------


def credit(call: Call) -> object:
    asked = call.read(StreamCredit)
    _stream(call).credit(asked.free, asked.taken)
    return SILENT


def results(call: Call) -> object:
    asked, stream = call.read(StreamResults), _stream(call)
    reported = _checked(asked.results, most_bytes=call.desk.settings.max_payload_bytes)
    event = ReportResults(
        worker_id=stream.worker_id, incarnation=stream.incarnation, results=reported
    )
    call.coordinator.hear(event, _replying(call, stream, lambda reply: _noted(reported, reply)))
    if asked.free is not None:
        # In the same batch as the results, which make the room that it speaks of.
        stream.credit(asked.free, asked.taken)
    return SILENT


def progress(call: Call) -> object:
    asked, stream = call.read(StreamProgress), _stream(call)
    most_bytes = call.desk.settings.max_payload_bytes
    for index, item in enumerate(asked.items):
        if item.progress is None and item.partial is None:
            raise invalid_field("progress", "give this or partial", index=index)
        for field, value in (("progress", item.progress), ("partial", item.partial)):
            _check_json(value, field, index, most_bytes=most_bytes)
    event = ReportProgress(
        worker_id=stream.worker_id, incarnation=stream.incarnation, items=asked.items
    )
    call.coordinator.hear(event, _replying(call, stream, lambda reply: _noted(asked.items, reply)))
    return SILENT


def beat(call: Call) -> object:
    asked, stream = call.read(StreamBeat), _stream(call)
    event = Heartbeat(
        worker_id=stream.worker_id,
        incarnation=stream.incarnation,
        running=None if asked.running is None else tuple(asked.running),
        load=asked.load,
    )
    answer = _replying(call, stream, _beat_answer)
    call.desk.streams.beats.add(event, interval_ms=stream.interval_ms, answer=answer)
    return SILENT


def _beat_answer(reply: Any) -> StreamBeatAnswer:
    assert isinstance(reply, Beat)
    return StreamBeatAnswer(
        health=reply.health,
        state=reply.state,
        cancel=[*reply.cancel],
        lost=[*reply.lost],
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        lease_ms=reply.lease_ms,
    )


# --- looking closer -----------------------------------------------------------------------------


def _checked(reported: list[Result], *, most_bytes: int) -> list[Result]:
    """Results as they may be kept. Of those that only say "done", nothing has to be looked at."""
    telling = [
        index
        for index, one in enumerate(reported)
        if not one.ok
        or one.result is not None
        or one.error is not None
        or one.snooze_ms is not None
    ]
    for index in telling:
        reported[index] = _checked_one(reported[index], index, most_bytes=most_bytes)
    return reported


def _checked_one(one: Result, index: int, *, most_bytes: int) -> Result:
    if one.ok:
        if one.error is not None or one.snooze_ms is not None:
            field = "snooze_ms" if one.error is None else "error"
            raise invalid_field(field, "not with a success", index=index)
        _check_json(one.result, "result", index, most_bytes=most_bytes)
        return one
    if one.result is not None:
        raise invalid_field("result", "only with a success", index=index)
    if one.snooze_ms is not None:
        return msgspec.structs.replace(one, error=None)
    try:
        return msgspec.structs.replace(one, error=task_error(one.error, most_bytes=most_bytes))
    except (TypeError, OverflowError):
        raise invalid_field("error", "details that JSON cannot hold", index=index) from None


def _check_json(value: bytes | None, field: str, index: int, *, most_bytes: int) -> None:
    if value is None:
        return
    try:
        _is_json(value)
        if not value.isascii():
            value.decode()
    except (msgspec.DecodeError, UnicodeError):
        raise invalid_field(field, "not JSON", index=index) from None
    except RecursionError:
        raise invalid_field(field, "nested too deep", index=index) from None
    check_value(Raw(value), field, most_bytes=most_bytes)


# --- replying -----------------------------------------------------------------------------------


def _noted(items: Sequence[Result | Progress], reply: Any) -> StreamNoted:
    assert isinstance(reply, Outcomes)
    outcomes = reply.outcomes
    if outcomes.count("accepted") == len(outcomes):  # nearly always
        return StreamNoted(count=len(items))
    refused = [
        (item.task_id, outcome)
        for item, outcome in zip(items, outcomes, strict=True)
        if outcome != "accepted"
    ]
    return StreamNoted(count=len(items), refused=[*refused])


def _replying(call: Call, stream: Stream, answer: Callable[[Any], Any]) -> Callable[[Any], None]:
    """A callback that replies when the coordinator has answered."""

    def reply(outcome: Any) -> None:
        if not isinstance(outcome, Exception):
            _reply(call, answer(outcome))
            return
        shown = presentable(outcome)
        _reply(call, FrameError(error=shown.detail, code=shown.code))
        if isinstance(outcome, WorkerNotFound | StaleIncarnation):
            stream.dismiss(outcome)

    return reply


def _reply(call: Call, payload: Any) -> None:
    connection, envelope = call.connection, call.envelope
    message = Outgoing(
        type=f"{envelope.type}Response",
        to=UI,
        sender=connection.address,
        payload=payload,
        timestamp=call.coordinator.clock.now_ms(),
        reply_to=envelope.id if is_given(envelope.id) else None,
    )
    connection.put(message)


ROUTES = (
    Route(
        kind=COORDINATOR,
        type=streams.OPEN,
        action=Action.WORK,
        handler=open_stream,
        payload=WorkerRegistration,
        answer=StreamOpened,
        summary="A worker registers, and streams over this socket.",
    ),
    Route(
        kind=COORDINATOR,
        type=streams.RESUME,
        action=Action.WORK,
        handler=resume_stream,
        payload=StreamResume,
        answer=StreamOpened,
        summary="A registered worker streams over this socket from now on, and keeps what it runs.",
    ),
    Route(
        kind=COORDINATOR,
        type=streams.CREDIT,
        action=Action.WORK,
        handler=credit,
        is_brisk=True,
        payload=StreamCredit,
        summary="How many tasks a streaming worker has room for. Not replied to.",
    ),
    Route(
        kind=COORDINATOR,
        type=streams.RESULTS,
        action=Action.WORK,
        handler=results,
        is_brisk=True,
        payload=StreamResults,
        answer=StreamNoted,
        summary="What became of tasks. The reply means that it is committed.",
    ),
    Route(
        kind=COORDINATOR,
        type=streams.PROGRESS,
        action=Action.WORK,
        handler=progress,
        is_brisk=True,
        payload=StreamProgress,
        answer=StreamNoted,
        summary="How far a streaming worker is with tasks.",
    ),
    Route(
        kind=COORDINATOR,
        type=streams.BEAT,
        action=Action.WORK,
        handler=beat,
        is_brisk=True,
        payload=StreamBeat,
        answer=StreamBeatAnswer,
        summary="A streaming worker is alive, and runs these.",
    ),
)
