"""How connections share the event loop: turns of input, eager starts, and the busy poll.

**Input takes turns with everything else.** libuv delivers input as long as more than a thousand
sockets have some, up to 48 times, before it runs anything else: no task goes on, and no commit is
answered, for seconds. So only the first pieces of input are parsed as they come in. The others wait
in a queue, of which the loop parses a few in each round. Between two rounds a heartbeat is
answered, and a place becomes free. A connection with a piece in the queue is not read from, so the
queue holds one piece a connection. While the application is crowded, most input is refused. That
costs little, so more of it is parsed as it comes in, and does not wait behind the queue. What is in
the queue gets the next free places.

**A complete request starts at once.** The loop makes a task, queues it, and starts it in its next
round, which takes longer than many requests do. A request that ends without waiting for anything
never has a task. If it waits, a task goes on with it.

**A caller in a hurry keeps the loop awake.** A caller that submits one task after the other sends
its next request a tenth of a millisecond after a response. To put the loop to sleep for so short a
time costs both sides more, above all on a virtual machine. So after a response to such a caller the
loop runs without sleeping, for as long as such a request takes. A caller that slows down costs one
such wait.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter
from typing import Any, Generic, TypeVar

READ_DIRECTLY = 256  # pieces of input that are parsed as they come in, in one round of the loop
READ_PER_ROUND = 64  # pieces of the queue that are parsed in one round of the loop
CROWDED_DIRECTLY = 256  # pieces that are parsed as they come in besides, while crowded
BUSY_POLL_S = 0.00025  # a caller that asks again within this is in a hurry
IS_WORTH_IT = len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else False

Parse = Callable[[bytes], object]
Outcome = TypeVar("Outcome")
Work = Coroutine[Any, Any, None]


class ReadQueue:
    """The input that waits for its turn. One for all connections of a loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, is_crowded: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_crowded`: whether most requests would be refused now."""
        self._loop = loop
        self._is_crowded = is_crowded
        self._waiting: deque[tuple[Parse, bytes]] = deque()
        self._direct_left = READ_DIRECTLY
        self._crowded_left = CROWDED_DIRECTLY
        self._is_scheduled = False

    def has_turn(self) -> bool:
        """Whether one more piece may be parsed as it comes in."""
        if self._direct_left and not self._waiting:
            self._direct_left -= 1
            return True
        if self._crowded_left and self._is_crowded():
            self._crowded_left -= 1
            return True
        return False

    def put(self, parse: Parse, data: bytes) -> None:
        """Have a piece parsed in its turn."""
        self._waiting.append((parse, data))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run_round)

    def _run_round(self) -> None:
        self._is_scheduled = False
        self._direct_left = READ_DIRECTLY
        self._crowded_left = CROWDED_DIRECTLY
        try:
            for _ in range(min(len(self._waiting), READ_PER_ROUND)):
                parse, data = self._waiting.popleft()
                parse(data)
        finally:
            if self._waiting:
                self._is_scheduled = True
                self._loop.call_soon(self._run_round)


def start_eagerly(work: Work, loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None] | None":
    """Run `work` up to where it first waits; the task that goes on with it, or None: it is done."""
    try:
        first = work.send(None)
    except StopIteration:
        return None
    return loop.create_task(_go_on(Begun(work, first)))


async def _go_on(begun: "Begun[None]") -> None:
    await begun


class Begun(Generic[Outcome]):
    """Work that has started and waits for something; to await this is to wait for the same."""

    def __init__(self, work: Coroutine[Any, Any, Outcome], first: Any) -> None:
        self._work = work
        self._first = first

    def __await__(self) -> Generator[Any, Any, Outcome]:
        waited_for = self._first
        while True:
            try:
                try:
                    came = yield waited_for
                except BaseException as error:  # noqa: BLE001 - all of them are the work's business
                    waited_for = self._work.throw(error)
                else:
                    waited_for = self._work.send(came)
            except StopIteration as ended:
                outcome: Outcome = ended.value
                return outcome


class BusyPoll:
    """The busy poll of one connection. Belongs to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answered_at_s = 0.0
        self._is_hurried = False
        self._is_polling = False  # whether the loop is kept awake

    def note_request(self) -> None:
        self._is_hurried = perf_counter() - self._answered_at_s < BUSY_POLL_S

    def note_response(self) -> None:
        self._answered_at_s = perf_counter()
        if self._is_hurried and IS_WORTH_IT and not self._is_polling:
            self._poll()

    def _poll(self) -> None:
        self._is_polling = perf_counter() - self._answered_at_s < BUSY_POLL_S
        if self._is_polling:
            self._loop.call_soon(self._poll)
