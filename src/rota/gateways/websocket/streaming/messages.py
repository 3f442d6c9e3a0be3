"""The messages of streaming workers.

No message waits for a commit before the next one is read, and none has a task of its own: its
command is handed to the coordinator, and the reply is sent by the callback of the command.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from rota.core import access
from rota.core.access import Action
from rota.core.commands import (
    AttemptLines,
    BeatWorker,
    Progress,
    ReportLogs,
    ReportProgress,
    ReportResults,
    Result,
)
from rota.core.replies import CommandBase
from rota.core.tasks.values import check_value
from rota.core.workflow.commands import (
    OperationsNoted,
    ReportedOperations,
    ReportOperations,
)
from rota.errors import Invalid, StaleIncarnation, WorkerNotFound
from rota.gateways.errors import presentable
from rota.gateways.registration import registration_of
from rota.gateways.validation import (
    check_lines,
    check_result,
    invalid_field,
    operations_of,
    task_error,
)
from rota.gateways.websocket.session.routing import COORDINATOR, NO_REPLY, MessageRoutes, SocketCall
from rota.gateways.websocket.streaming.workers import WorkerStream
from rota.messages import WorkerRegistration, streams
from rota.messages.sessions import MSGPACK, UI, FrameError, Outgoing, is_given
from rota.messages.streams import (
    StreamBeat,
    StreamBeatAnswer,
    StreamCredit,
    StreamLogs,
    StreamNoted,
    StreamOpened,
    StreamOperations,
    StreamOperationsNoted,
    StreamProgress,
    StreamResults,
    StreamResume,
)

Item = TypeVar("Item", bound=Progress | AttemptLines | ReportedOperations)

_is_json = msgspec.json.Decoder(Raw).decode

routes = MessageRoutes()

# --- opening ------------------------------------------------------------------------------------


@routes.message(COORDINATOR, streams.OPEN, Action.WORK, payload=WorkerRegistration)
async def open_stream(call: SocketCall) -> StreamOpened:
    """Register a worker that streams over this socket."""
    _require_msgpack(call)
    command = registration_of(call.read(WorkerRegistration), call.caller)
    await call.services.worker_quota.check(call.connection.reservation.holder, command.worker_id)
    reply = await call.coordinator.execute(command)
    worker = reply.worker
    call.services.streams.open(
        call.connection, worker.id, worker.incarnation, worker.heartbeat_interval_ms
    )
    return StreamOpened(
        worker_id=worker.id,
        incarnation=worker.incarnation,
        heartbeat_interval_ms=worker.heartbeat_interval_ms,
        lease_ms=reply.lease_ms,
        max_frame_bytes=call.services.settings.max_frame_bytes,
    )


@routes.message(COORDINATOR, streams.RESUME, Action.WORK, payload=StreamResume)
async def resume_stream(call: SocketCall) -> StreamOpened:
    """Move the stream of a registered worker to this socket; it keeps its running tasks."""
    _require_msgpack(call)
    asked = call.read(StreamResume)
    access.check_worker(call.caller, asked.worker_id)
    beat = await call.coordinator.execute(
        BeatWorker(
            worker_id=asked.worker_id,
            incarnation=asked.incarnation,
            running=tuple(asked.running),
            by=call.caller,
        )
    )
    # Before its leases are read: from here on an earlier stream gets nothing more.
    stream = call.services.streams.open(
        call.connection, asked.worker_id, asked.incarnation, beat.heartbeat_interval_ms
    )
    running = set(asked.running)
    held = await call.coordinator.queries.tasks.held_by(asked.incarnation)
    lost_leases = [(task.id, task.fence) for task in held if task.id not in running]
    stream.return_leases(lost_leases)
    return StreamOpened(
        worker_id=asked.worker_id,
        incarnation=asked.incarnation,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        lease_ms=beat.lease_ms,
        max_frame_bytes=call.services.settings.max_frame_bytes,
        cancel=[*beat.cancel],
        lost=[*beat.lost],
    )


def _require_msgpack(call: SocketCall) -> None:
    if call.connection.codec.subprotocol != MSGPACK:
        raise Invalid(f"streams are for sockets of the subprotocol {MSGPACK!r}", field="type")


def _stream(call: SocketCall) -> WorkerStream:
    stream = call.services.streams.of(call.connection)
    if stream is None:
        raise Invalid(f"no stream is open on this socket: send {streams.OPEN!r} first")
    return stream


# --- credit, reports and heartbeats -------------------------------------------------------------


@routes.message(COORDINATOR, streams.CREDIT, Action.WORK, is_immediate=True, payload=StreamCredit)
def credit(call: SocketCall) -> object:
    """Report the free slots of a streaming worker. There is no reply."""
    asked = call.read(StreamCredit)
    _stream(call).credit(asked.free, asked.taken)
    return NO_REPLY


@routes.message(
    COORDINATOR,
    streams.RESULTS,
    Action.WORK,
    is_immediate=True,
    payload=StreamResults,
    answer=StreamNoted,
)
def results(call: SocketCall) -> object:
    """Report results. The reply means that they are committed."""
    asked, stream = call.read(StreamResults), _stream(call)
    reported = _checked(asked.results, most_bytes=call.services.settings.max_payload_bytes)
    command = ReportResults(
        worker_id=stream.worker_id,
        incarnation=stream.incarnation,
        results=reported,
        by=call.caller,
    )
    on_reply = _replying(call, stream, lambda reply: _noted(reported, reply))
    call.coordinator.execute(command, on_reply=on_reply)
    if asked.free is not None:
        # In the same batch as the results, which free the slots.
        stream.credit(asked.free, asked.taken)
    return NO_REPLY


@routes.message(
    COORDINATOR,
    streams.PROGRESS,
    Action.WORK,
    is_immediate=True,
    payload=StreamProgress,
    answer=StreamNoted,
)
def progress(call: SocketCall) -> object:
    """Report the progress of tasks."""
    asked, stream = call.read(StreamProgress), _stream(call)
    most_bytes = call.services.settings.max_payload_bytes
    for index, item in enumerate(asked.items):
        if item.progress is None and item.partial is None:
            raise invalid_field("progress", "give this or partial", index=index)
        for field, value in (("progress", item.progress), ("partial", item.partial)):
            _check_json(value, field, index, most_bytes=most_bytes)
    return _report(call, stream, ReportProgress, asked.items, _noted)


@routes.message(
    COORDINATOR,
    streams.LOGS,
    Action.WORK,
    is_immediate=True,
    payload=StreamLogs,
    answer=StreamNoted,
)
def logs(call: SocketCall) -> object:
    """Report what handlers have logged."""
    asked, stream = call.read(StreamLogs), _stream(call)
    most_bytes = call.services.settings.max_payload_bytes
    for index, item in enumerate(asked.items):
        check_lines(item.lines, index)
        for line in item.lines:
            _check_json(line.fields, "fields", index, most_bytes=most_bytes)
    return _report(call, stream, ReportLogs, asked.items, _noted)


@routes.message(
    COORDINATOR,
    streams.OPERATIONS,
    Action.WORK,
    is_immediate=True,
    payload=StreamOperations,
    answer=StreamOperationsNoted,
)
def operations(call: SocketCall) -> object:
    """Report what functions have done so far. The reply means that it is committed."""
    asked, stream = call.read(StreamOperations), _stream(call)
    most_bytes = call.services.settings.max_payload_bytes
    items = [
        ReportedOperations(
            one.task_id,
            one.fence,
            one.after,
            operations_of(one.operations, index, most_bytes=most_bytes),
        )
        for index, one in enumerate(asked.items)
    ]
    return _report(call, stream, ReportOperations, items, _operations_noted)


def _report(
    call: SocketCall,
    stream: WorkerStream,
    command: Callable[..., CommandBase[Any]],
    items: Sequence[Item],
    answer: Callable[[Sequence[Item], Any], StreamNoted | StreamOperationsNoted],
) -> object:
    """Hand items of the worker to the coordinator; the reply follows its commit."""
    report = command(
        worker_id=stream.worker_id, incarnation=stream.incarnation, items=items, by=call.caller
    )
    on_reply = _replying(call, stream, lambda reply: answer(items, reply))
    call.coordinator.execute(report, on_reply=on_reply)
    return NO_REPLY


def _operations_noted(
    items: Sequence[ReportedOperations], reply: OperationsNoted
) -> StreamOperationsNoted:
    return StreamOperationsNoted(
        count=len(items),
        refused=[
            (item.task_id, outcome)
            for item, outcome in zip(items, reply.outcomes, strict=True)
            if outcome != "accepted"
        ],
        cancelled=[(items[place].task_id, reason) for place, reason in reply.cancelled.items()],
    )


@routes.message(
    COORDINATOR,
    streams.BEAT,
    Action.WORK,
    is_immediate=True,
    payload=StreamBeat,
    answer=StreamBeatAnswer,
)
def beat(call: SocketCall) -> object:
    """Send a heartbeat with the running tasks."""
    asked, stream = call.read(StreamBeat), _stream(call)
    command = BeatWorker(
        worker_id=stream.worker_id,
        incarnation=stream.incarnation,
        running=None if asked.running is None else tuple(asked.running),
        load=asked.load,
        by=call.caller,
    )
    answer = _replying(call, stream, _beat_answer)
    call.services.streams.beats.add(command, interval_ms=stream.interval_ms, answer=answer)
    return NO_REPLY


def _beat_answer(reply: Any) -> StreamBeatAnswer:
    return StreamBeatAnswer(
        health=reply.health,
        state=reply.state,
        cancel=[*reply.cancel],
        lost=[*reply.lost],
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        lease_ms=reply.lease_ms,
    )


# --- validating ---------------------------------------------------------------------------------


def _checked(reported: list[Result], *, most_bytes: int) -> list[Result]:
    """Results as they may be stored. A success without a result needs no check."""
    unusual = [
        index
        for index, one in enumerate(reported)
        if not one.ok
        or one.result is not None
        or one.error is not None
        or one.snooze_ms is not None
    ]
    for index in unusual:
        reported[index] = _checked_one(reported[index], index, most_bytes=most_bytes)
    return reported


def _checked_one(one: Result, index: int, *, most_bytes: int) -> Result:
    check_result(
        ok=one.ok,
        has_result=one.result is not None,
        error=one.error,
        snooze_ms=one.snooze_ms,
        rate_limited=one.rate_limited,
        index=index,
    )
    if one.ok:
        _check_json(one.result, "result", index, most_bytes=most_bytes)
        return one
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


def _noted(items: Sequence[Result | Progress | AttemptLines], reply: Any) -> StreamNoted:
    outcomes = reply.outcomes
    if outcomes.count("accepted") == len(outcomes):  # nearly always
        return StreamNoted(count=len(items))
    refused = [
        (item.task_id, outcome)
        for item, outcome in zip(items, outcomes, strict=True)
        if outcome != "accepted"
    ]
    return StreamNoted(count=len(items), refused=[*refused])


def _replying(
    call: SocketCall, stream: WorkerStream, answer: Callable[[Any], Any]
) -> Callable[[Any], None]:
    """A callback that replies when the coordinator has answered."""
    connection, size = call.connection, len(call.envelope.payload)
    connection.begin_call(size)

    def reply(outcome: Any) -> None:
        connection.end_call(size)
        if not isinstance(outcome, Exception):
            _reply(call, answer(outcome))
            return
        shown = presentable(outcome)
        _reply(call, FrameError(error=shown.detail, code=shown.code))
        if isinstance(outcome, WorkerNotFound | StaleIncarnation):
            stream.end_with(outcome)

    return reply


def _reply(call: SocketCall, payload: Any) -> None:
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
