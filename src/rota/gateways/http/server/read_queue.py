"""Input takes turns with everything else that the event loop has to do.

libuv delivers input as long as more than a thousand sockets have some, up to 48 times, before it
runs anything else: no task goes on, and no commit is answered, for seconds. So only the first
pieces of input are parsed as they come in. The others wait in a queue, of which the loop parses a
few in each round. Between two rounds a heartbeat is answered, and a place becomes free. A
connection with a piece in the queue is not read from, so the queue holds one piece a connection.

While the application is crowded, most input is refused. That costs little, so more of it is parsed
as it comes in, and does not wait behind the queue. What is in the queue gets the next free places.
"""

import asyncio
from collections import deque
from collections.abc import Callable

READ_DIRECTLY = 256  # pieces of input that are parsed as they come in, in one round of the loop
READ_PER_ROUND = 64  # pieces of the queue that are parsed in one round of the loop
CROWDED_DIRECTLY = 256  # pieces that are parsed as they come in besides, while crowded

Parse = Callable[[bytes], object]


class ReadQueue:
    """The input that waits for its turn. One for all connections of a loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, is_crowded: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_crowded` tells whether most requests would be refused now."""
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
