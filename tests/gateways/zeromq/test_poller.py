"""Is every message taken, on every loop, although the descriptor tells of changes only?"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop
import zmq

from rota.gateways.zeromq import flow_control
from rota.gateways.zeromq.poller import MOST_PER_TURN, NOW, SocketPoller
from tests.gateways.zeromq.dealers import TIMEOUT_S

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
MANY = 5 * MOST_PER_TURN


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run_on_it(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(asyncio.wait_for(main, TIMEOUT_S))

    return run_on_it


@contextmanager
def pair() -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]:
    """A ROUTER and a DEALER that are connected over TCP."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    dealer.connect(f"tcp://127.0.0.1:{port}")
    try:
        yield router, dealer
    finally:
        router.close(0)
        dealer.close(0)
        context.term()


def test_all_of_a_burst_is_taken_in_order(run: Callable[..., None]) -> None:
    async def main() -> None:
        with pair() as (router, dealer):
            taken: list[bytes] = []
            all_taken = asyncio.Event()

            def take() -> None:
                taken.append(router.recv_multipart(NOW)[1])
                if len(taken) == MANY:
                    all_taken.set()

            for number in range(MANY):
                dealer.send(b"%d" % number)
            poller = SocketPoller(router, take)
            await all_taken.wait()
            poller.close()

            assert taken == [b"%d" % number for number in range(MANY)]

    run(main())


def test_messages_that_come_while_we_send_are_not_missed(run: Callable[..., None]) -> None:
    async def main() -> None:
        with pair() as (router, dealer):
            ended = asyncio.Event()
            echoed = 0

            def echo() -> None:
                nonlocal echoed
                router.send_multipart(router.recv_multipart(NOW), NOW)
                poller.poll_soon()
                echoed += 1
                if echoed == MANY:
                    ended.set()

            def again() -> None:
                dealer.recv(NOW)
                dealer.send(b"x")
                client.poll_soon()

            poller, client = SocketPoller(router, echo), SocketPoller(dealer, again)
            dealer.send(b"x")
            await ended.wait()
            poller.close()
            client.close()

    run(main())


def test_a_pause_is_kept_and_nothing_is_lost_by_it(run: Callable[..., None]) -> None:
    async def main() -> None:
        with pair() as (router, dealer):
            taken: list[bytes] = []
            half, whole = asyncio.Event(), asyncio.Event()

            def take() -> None:
                taken.append(router.recv_multipart(NOW)[1])
                if len(taken) == MANY // 2:
                    poller.is_paused = True
                    half.set()
                if len(taken) == MANY:
                    whole.set()

            poller = SocketPoller(router, take)
            for _ in range(MANY):
                dealer.send(b"x")
            await half.wait()
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(taken) == MANY // 2

            poller.is_paused = False
            poller.poll_soon()
            await whole.wait()
            poller.close()

    run(main())


def test_a_message_that_breaks_its_taker_does_not_hold_up_the_next(
    run: Callable[..., None],
) -> None:
    async def main() -> None:
        broken: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
        with pair() as (router, dealer):
            taken: list[bytes] = []
            ended = asyncio.Event()

            def take() -> None:
                body = router.recv_multipart(NOW)[1]
                if body == b"bad":
                    raise ValueError("our own mistake")
                taken.append(body)
                ended.set()

            dealer.send(b"bad")
            dealer.send(b"good")
            poller = SocketPoller(router, take)
            await ended.wait()
            poller.close()

        assert taken == [b"good"]
        assert len(broken) == 1

    run(main())


# --- how much is under way ----------------------------------------------------------------------


def test_one_turns_worth_is_read_until_it_is_answered(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_control, "MAX_PAUSE_S", TIMEOUT_S)

    async def main() -> None:
        with pair() as (router, dealer):
            taken: list[bytes] = []
            turns = {count * MOST_PER_TURN: asyncio.Event() for count in (1, 2)}

            def take() -> None:
                taken.append(router.recv_multipart(NOW)[1])
                under_way.enter(1)
                if len(taken) in turns:
                    turns[len(taken)].set()

            poller = SocketPoller(router, take)
            under_way = flow_control.FlowControl(poller)
            for _ in range(MANY):
                dealer.send(b"x")
            await turns[MOST_PER_TURN].wait()
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(taken) == MOST_PER_TURN

            for _ in range(MOST_PER_TURN):
                under_way.leave(1)
            await turns[2 * MOST_PER_TURN].wait()
            under_way.close()
            poller.close()

    run(main())


def test_when_answers_take_their_time_more_is_read(run: Callable[..., None]) -> None:
    async def main() -> None:
        with pair() as (router, dealer):
            taken: list[bytes] = []
            all_taken = asyncio.Event()

            def take() -> None:
                taken.append(router.recv_multipart(NOW)[1])
                under_way.enter(1)
                if len(taken) == MANY:
                    all_taken.set()

            poller = SocketPoller(router, take)
            under_way = flow_control.FlowControl(poller)
            for _ in range(MANY):
                dealer.send(b"x")
            await all_taken.wait()
            under_way.close()
            poller.close()

    run(main())
