"""Long-lived uses of tokens, ended when their token is revoked or expires.

Theory of operation. A request is checked once, when it arrives. What lasts longer (an event stream,
a WebSocket, a long poll) is registered here with a callback that ends it. While any use is
registered, one task checks the tokens in use once a second, and at once when tokens change in this
process. For that check the authenticator reads stale tokens again, so a token that another process
or replica revoked ends as well. The task ends with the last use.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rota.core.access import Caller

log = structlog.get_logger("rota.gate")

CHECK_EVERY_S = 1.0  # with the authenticator's RELOAD_AFTER_S: how long a revoked token may go on
ENDED = "the token was revoked or has expired"

EndUse = Callable[[], object]


class TokenUse:
    """One event stream, socket or long poll."""

    __slots__ = ("end", "token_id")

    def __init__(self, token_id: str, end: EndUse) -> None:
        self.token_id = token_id
        self.end = end


class TokenUses:
    """All uses of one authenticator's tokens. Belongs to the event loop."""

    def __init__(
        self, refresh: Callable[[], Awaitable[None]], is_good: Callable[[str], bool]
    ) -> None:
        """`refresh` reads the tokens again if they are stale; `is_good` takes a token's id."""
        self._refresh = refresh
        self._is_good = is_good
        self._by_token: dict[str, dict[TokenUse, None]] = {}
        self._changed = asyncio.Event()
        self._checker: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many uses there are."""
        return sum(map(len, self._by_token.values()))

    @property
    def is_checking(self) -> bool:
        return self._checker is not None

    def add(self, caller: Caller, end: EndUse) -> TokenUse | None:
        """Call `end` when the caller's token ends; None: the caller has no token."""
        if caller.token_id is None:
            return None
        use = TokenUse(caller.token_id, end)
        self._by_token.setdefault(caller.token_id, {})[use] = None
        if self._checker is None:
            self._checker = asyncio.get_running_loop().create_task(self._check_regularly())
        return use

    def drop(self, use: TokenUse | None) -> None:
        """Forget a use that is over."""
        if use is None:
            return
        uses = self._by_token.get(use.token_id)
        if uses is not None:
            uses.pop(use, None)
            if not uses:
                del self._by_token[use.token_id]

    def note_change(self) -> None:
        """Check now, because tokens have changed."""
        self._changed.set()

    def stop(self) -> None:
        if self._checker is not None:
            self._checker.cancel()

    async def check(self) -> None:
        """End the uses of tokens that are no longer valid."""
        try:
            await self._refresh()
        except Exception as error:  # noqa: BLE001 - the store may be unavailable; tokens expire all the same
            log.warning("tokens_not_reloaded", error=str(error))
        for token_id in [one for one in self._by_token if not self._is_good(one)]:
            for use in self._by_token.pop(token_id, ()):
                use.end()

    async def _check_regularly(self) -> None:
        try:
            while self._by_token:
                try:
                    async with asyncio.timeout(CHECK_EVERY_S):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                self._changed.clear()
                await self.check()
        finally:
            self._checker = None
