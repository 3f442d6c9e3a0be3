"""Whatever is sent, the answer is never our mistake, and the socket and the server live."""

import asyncio
import gc
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from rota.core.access import LOCAL
from rota.gateways.quotas import Reservation
from rota.gateways.websocket.codecs import codec_for
from rota.gateways.websocket.connection import Connection
from rota.gateways.websocket.session.dispatcher import ROUTES, MessageDispatcher
from rota.messages import sessions
from tests.gateways.serving import Api, Json, served
from tests.gateways.websocket.talking import MAIN, PATIENCE_S, Peer, address_of, peer

TYPES = sorted({route.type for route in ROUTES})
FIELDS = sorted(
    {
        field.encode_name
        for kind in vars(sessions).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        for field in msgspec.structs.fields(kind)
    }
)
ADDRESSES = [
    MAIN,
    "worker:w",
    "coordinator:",
    ":",
    "",
    "x:y",
    "__system__",
    "coordinator:" + "q" * 300,
]
TEXTS = [
    "",
    "\x00",
    "t",
    "w",
    "0000000000000001",
    "7fffffffffffffff",
    "\ud800",
    "x" * 300,
    "worker:w",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(TEXTS),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=12,
)
ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "to": st.sampled_from(ADDRESSES) | VALUES,
        "type": st.sampled_from([*TYPES, "ping", "HEARTBEAT_PING"]) | VALUES,
        "from": st.sampled_from(["w", "x", ""]) | VALUES,
        "payload": VALUES,
        "id": VALUES,
        "taskId": st.sampled_from(TEXTS) | VALUES,
        "timestamp": VALUES,
        "replyTo": VALUES,
    },
)
# Those that go to their handler, with payloads that nearly fit.
NEARLY = st.fixed_dictionaries(
    {
        "to": st.sampled_from([MAIN, "worker:w"]),
        "type": st.sampled_from(TYPES),
        "payload": st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5) | VALUES,
    },
    optional={"from": st.just("w"), "id": VALUES},
)
FRAMES = ENVELOPES | NEARLY | st.lists(ENVELOPES | NEARLY | VALUES, max_size=4)
QUIETLY = settings(
    max_examples=40,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Codes that a client may meet; `internal` is not among them.
PROMISED = {
    None,
    "forbidden",
    "illegal_state",
    "invalid",
    "invalid_address",
    "invalid_message",
    "stale_lease",
    "task_cancelled",
    "task_failed",
    "task_not_found",
    "too_large",
    "too_many",
    "unknown_actor_type",
    "worker_not_found",
    "worker_replaced",
}
END = {"type": "HEARTBEAT_PING", "to": "__system__", "id": "that is all"}


async def conversation(address: str, frames: list[Json], codec: Any, **options: Any) -> list[Json]:
    """Say all of it; what is answered until the coordinator has come to the end of it."""
    heard: list[Json] = []
    async with asyncio.timeout(PATIENCE_S), connect(address, **options) as socket:
        for frame in [*frames, END]:
            await socket.send(codec.encode(frame))
        while True:
            answer = codec.decode(await socket.recv())
            if answer["type"] == "HEARTBEAT_PONG" and answer.get("id") == "that is all":
                return heard
            heard.append(answer)


class JsonCodec:
    @staticmethod
    def encode(frame: Json) -> str:
        return json.dumps(frame)

    decode = staticmethod(json.loads)


class PackedCodec:
    @staticmethod
    def encode(frame: Json) -> bytes:
        return msgspec.msgpack.encode(_packable(frame))

    decode = staticmethod(msgspec.msgpack.decode)


def _packable(value: Json) -> Json:
    """Numbers and texts that cannot be packed are replaced by some that can."""
    match value:
        case int() if not isinstance(value, bool):
            return value if -(2**63) <= value < 2**64 else 7
        case str():
            return value.encode(errors="replace").decode()
        case list():
            return [_packable(one) for one in value]
        case dict():
            return {_packable(key): _packable(one) for key, one in value.items()}
        case _:
            return value


def check(heard: list[Json]) -> None:
    for frame in heard:
        payload = frame.get("payload")
        code = payload.get("code") if isinstance(payload, dict) else None
        assert code in PROMISED, frame


@pytest.mark.slow
def test_envelopes_of_any_kind_are_answered_with_what_was_promised(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:

        async def begin() -> tuple[Any, Api]:
            serving = served(tmp_path, store="sqlite://", zmq_port=None)
            return serving, await serving.__aenter__()

        serving, api = runner.run(begin())

        @QUIETLY
        @given(st.lists(FRAMES, max_size=8))
        def any_frames(frames: list[Json]) -> None:
            check(runner.run(conversation(address_of(api), frames, JsonCodec)))

        @QUIETLY
        @given(st.lists(FRAMES, max_size=8))
        def any_packed_frames(frames: list[Json]) -> None:
            packed = {"subprotocols": [Subprotocol(sessions.MSGPACK)]}
            check(runner.run(conversation(address_of(api), frames, PackedCodec, **packed)))

        try:
            any_frames()
            any_packed_frames()
            assert runner.run(_is_well(api))
        finally:
            runner.run(serving.__aexit__(None, None, None))


async def _is_well(api: Api) -> bool:
    async with peer(api) as client:
        status = await client.ask("get_status", "coordinator:untouched")
    return bool(status["queuedTasks"] == 0 and (await api.get("/health")).status_code == 200)


NONSENSE = st.text(max_size=50).map(lambda text: text.encode(errors="ignore").decode())


@pytest.mark.slow
def test_texts_and_bytes_of_any_kind_are_answered_with_what_was_promised(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:

        async def begin() -> tuple[Any, Api]:
            serving = served(tmp_path, store="sqlite://", zmq_port=None)
            return serving, await serving.__aenter__()

        serving, api = runner.run(begin())

        async def say(frames: list[str | bytes]) -> list[Json]:
            async with asyncio.timeout(PATIENCE_S), connect(address_of(api)) as socket:
                for frame in frames:
                    await socket.send(frame)
                await socket.send('{"type": "ping"}')
                heard: list[Json] = []
                while (answer := json.loads(await socket.recv())) != {"type": "pong"}:
                    heard.append(answer)
                return heard

        @QUIETLY
        @given(st.lists(NONSENSE | st.binary(max_size=50), max_size=10))
        def any_nonsense(frames: list[str | bytes]) -> None:
            heard = runner.run(say(frames))

            established, *errors = heard
            assert established["type"] == "SessionEstablished"
            assert len(errors) == sum(isinstance(one, str) for one in frames if one != "[]")
            assert {one["payload"]["error"] for one in errors} <= {"Invalid message format"}

        try:
            any_nonsense()
            assert runner.run(_is_well(api))
        finally:
            runner.run(serving.__aexit__(None, None, None))


async def test_a_text_that_is_not_utf_8_ends_its_socket_and_is_no_error_of_ours(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(address_of(api)) as socket:
        await socket.recv()
        await socket.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosed) as ended:
            await socket.recv()

    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1007
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []


async def test_a_wait_that_is_cut_off_before_it_began_leaves_nothing_behind(
    api: Api, client: Peer
) -> None:
    await client.register("w")
    asked = {"to": "worker:w", "type": "process_task", "id": 1, "payload": {"taskId": "t"}}
    frames = iter(
        (
            {"type": "websocket.receive", "text": json.dumps(asked)},
            {"type": "websocket.disconnect"},
        )
    )

    async def receive() -> Any:
        return next(frames)

    async def send(_: Any) -> None: ...

    connection = Connection(
        send,
        codec_for(()),
        LOCAL,
        "0" * 64,
        transport=None,
        reservation=Reservation("local", LOCAL),
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        await MessageDispatcher(api.node.sockets.services, connection).run(receive)
        await asyncio.sleep(0)
        gc.collect()

    assert [str(one.message) for one in warned if one.category is RuntimeWarning] == []


async def test_a_refused_handshake_is_no_error_of_ours(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidStatus):
        await connect(address_of(api), additional_headers={"origin": "https://evil.example"})
    async with peer(api) as client:  # what was refused has been seen to by now
        await client.quiet()

    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []
