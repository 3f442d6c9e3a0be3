"""Handles of runs of functions: typed results, questions, published values and streams."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from rota.core.workflow.states import RUN_ENDED
from rota.errors import IllegalState, Unavailable
from rota.messages import RunView
from rota.sdk.client import function_calls, run_calls
from rota.sdk.client.client import Client, ItemStream
from rota.sdk.client.requests import WAIT_MS, Exchange, Wait, new_key
from rota.sdk.encoding import encode
from rota.sdk.options.durations import Seconds
from rota.sdk.run import RunHandle, output_of

R = TypeVar("R")


class FunctionHandle(RunHandle, Generic[R]):
    """A started run of a function. A handle holds no resources."""

    __slots__ = ("_decoder",)

    def __init__(
        self,
        run_id: str,
        client: Callable[[], Client],
        decoder: "msgspec.json.Decoder[Any]",
        *,
        is_duplicate: bool = False,
    ) -> None:
        super().__init__(run_id, client, is_duplicate=is_duplicate)
        self._decoder = decoder

    @classmethod
    def of_view(
        cls, view: RunView, client: Callable[[], Client], decoder: "msgspec.json.Decoder[Any]"
    ) -> "FunctionHandle[Any]":
        return cls(view.id, client, decoder, is_duplicate=view.duplicate)

    def result(self, timeout: Seconds | None = None) -> R:
        """Wait for the function to end and return its result: see `RunHandle.result`."""
        return self._decoded(super().result(timeout))

    async def aresult(self, timeout: Seconds | None = None) -> R:  # noqa: ASYNC109 - as `result`
        """As `result`, for async code."""
        return self._decoded(await super().aresult(timeout))

    def ended(self, view: RunView, timeout: Seconds | None) -> Exchange[R]:
        """The calls that wait for the end of a run that was seen as in `view`; its result."""
        if view.state in RUN_ENDED:
            return self._decoded(output_of(view))
        return self._decoded((yield from self._wait(timeout)))

    def _decoded(self, output: Any) -> R:
        content = encode(output)
        try:
            found: R = self._decoder.decode(content)
        except msgspec.ValidationError:
            found = msgspec.json.decode(content)  # another version of the code wrote it
        return found

    def ask(self, name: str, payload: Any = None, *, timeout: Seconds | None = None) -> Any:
        """Send a signal that the function receives, and wait for its reply."""
        return self._client().run(self._ask(name, payload, timeout))

    async def aask(
        self,
        name: str,
        payload: Any = None,
        *,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - as `ask`
    ) -> Any:
        """As `ask`, for async code."""
        return await self._client().arun(self._ask(name, payload, timeout))

    def _ask(self, name: str, payload: Any, timeout: Seconds | None) -> Exchange[Any]:
        key = new_key()
        yield run_calls.signal_run(self.id, name, msgspec.Raw(encode(payload)), key=key)
        wait = Wait(f"the reply of run {self.id!r}", timeout)
        while True:
            try:
                reply = yield function_calls.get_reply(self.id, key, wait_ms=wait.call_ms())
            except Unavailable as error:
                yield wait.pause_s(error)
            else:
                if reply.ready:
                    return reply.value
                if reply.ended:
                    raise IllegalState(f"run {self.id!r} has ended without a reply to {name!r}")
                wait.check("missing")

    @property
    def published(self) -> dict[str, Any]:
        """The values that the function has published, by key."""
        context = self.view().context
        state = None if context is None else context.state
        return state if isinstance(state, dict) else {}

    def stream(self, name: str) -> ItemStream[Any]:
        """The values of a stream, for `for` and `async for`, until the run has ended."""
        after = 0

        def next_page() -> Exchange[list[Any] | None]:
            nonlocal after
            page = yield function_calls.get_stream(self.id, name, after=after, wait_ms=WAIT_MS)
            after = page.next_after
            return None if page.ended and not page.items else page.items

        return ItemStream(self._client(), next_page)
