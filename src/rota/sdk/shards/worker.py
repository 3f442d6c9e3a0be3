"""What does a program start to be handed shards of a service? A `ShardWorker`.

    ShardWorker("feed", shards=64, on_assigned=begin, on_revoked=end, on_lost=drop).run()

`run` blocks until the worker is stopped: by a signal (the first drains, the second quits at once)
or by `stop` from another thread. It says why it returned.
"""

import asyncio
import contextlib
import secrets
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any, Self

import msgspec

from rota.core import limits
from rota.core.shards.events import RegisterMember
from rota.core.shards.members import PROTOCOL
from rota.errors import Invalid
from rota.messages.shards import RegisterData, register_event
from rota.sdk.sessions import now_s
from rota.sdk.shards.callbacks import Callback
from rota.sdk.shards.coordinates import Coordinates
from rota.sdk.shards.driver import Driver
from rota.sdk.shards.held import HeldShard
from rota.sdk.shards.seats import Functions
from rota.sdk.shift import StopReason

__all__ = ["HeldShard", "ShardWorker"]

STOPPING = (signal.SIGTERM, signal.SIGINT)
DRAIN_S = 30.0
CANCELLED_WAIT_S = 3.0  # what an `arun` that is cancelled still waits for its worker's leaving


class ShardWorker:
    """Holds as many shards of a service as its coordinator sees fit.

    `shards` is how many the service has, all workers together. Callbacks get a `HeldShard`, and may
    be plain functions, which run in threads, or coroutine functions, which run on the event loop of
    `arun` (`run` has one of its own). Calls about one shard come one after the other, calls about
    several side by side, up to 128 at once. None of them can hold up the worker's heartbeat.

    `on_assigned` begins the work on a shard, and returns. When it raises, that is logged, and the
    shard rests in our hands: nobody works on it (`is_held` is false) until another call, after a
    pause, returns. `failing` tells which shards rest, and why.
    `on_revoked` ends the work in good order; the shard is still ours, and somebody else gets it as
    soon as it has returned. When it raises, that is logged, and counts as returned.
    `on_lost` ends the work after the fact: the lease is over, and somebody else may have the shard
    already. Nothing may be done for it any more. It follows on whatever callback of the shard was
    under way; the worker becomes a member anew when all have returned.

    With `zmq`, or `ROTA_ZMQ`, the worker speaks ZeroMQ with that address (`zmq=""`: in no case),
    under CURVE keys if it has them (`ROTA_ZMQ_PUBLIC_KEY`, `ROTA_ZMQ_SECRET_KEY`,
    `ROTA_ZMQ_SERVER_KEY`); checkpoints go over HTTP all the same. Otherwise it speaks HTTP with
    `url`, or what `ROTA_URL` names, or an embedded coordinator. Twice the `weight`, twice the
    shards; `max_shards` is the most it takes. A worker that comes back under its `worker_id` before
    its lease is over gets its old shards. `drain_s` is what callbacks get to give shards up once a
    stop is asked for.
    """

    def __init__(
        self,
        service: str,
        *,
        shards: int,
        on_assigned: Callback,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        worker_id: str | None = None,
        url: str | None = None,
        token: str | None = None,
        zmq: str | None = None,
        zmq_public_key: str | None = None,
        zmq_secret_key: str | None = None,
        zmq_server_key: str | None = None,
        weight: float = 1.0,
        max_shards: int | None = None,
        drain_s: float = DRAIN_S,
    ) -> None:
        if drain_s < 0:
            raise Invalid("drain_s is a time in seconds: 0 or more")
        self.service = service
        self.worker_id = worker_id or _new_id()
        self._functions = Functions(on_assigned, on_revoked, on_lost)
        self._coordinates = Coordinates(
            url=url,
            token=token,
            zmq=zmq,
            zmq_public_key=zmq_public_key,
            zmq_secret_key=zmq_secret_key,
            zmq_server_key=zmq_server_key,
        )
        self._drain_s = drain_s
        self._applicant = _checked_applicant(
            {
                "serviceName": service,
                "workerId": self.worker_id,
                "maxShardCount": shards,
                "protocol": PROTOCOL,
                "weight": weight,
                "maxShards": max_shards,
            }
        )
        self._driver: Driver | None = None
        self._driver_loop: asyncio.AbstractEventLoop | None = None
        self._is_running = False
        self._stops_asked = 0
        self._background: Background | None = None

    # --- what it holds --------------------------------------------------------------------------

    @property
    def held(self) -> dict[int, HeldShard]:
        """The shards that are worked on, by number: `on_assigned` has returned for them."""
        membership = None if self._driver is None else self._driver.membership
        return {} if membership is None else membership.seats.taken()

    @property
    def failing(self) -> dict[int, BaseException]:
        """The shards that rest, by number, and what `on_assigned` raised."""
        membership = None if self._driver is None else self._driver.membership
        return {} if membership is None else membership.seats.failing()

    # --- running --------------------------------------------------------------------------------

    def run(self) -> StopReason:
        """Work on this thread until stopped. On the main thread SIGTERM and SIGINT are heeded."""
        with asyncio.Runner() as runner:
            return runner.run(self._run_with_signals())

    async def arun(self) -> StopReason:
        """Work until stopped. Coroutine callbacks run on this loop; signals are the caller's."""
        if self._is_running:
            raise Invalid("this worker is running already")
        self._is_running = True
        ended: Future[StopReason] = Future()
        drive = partial(self._drive, asyncio.get_running_loop(), ended)
        # Callbacks see the caller's context variables.
        context = copy_context()
        thread = threading.Thread(
            target=context.run, args=(drive,), name="rota-shard-driver", daemon=True
        )
        thread.start()
        ending = asyncio.wrap_future(ended)
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            self._ask_driver(Driver.hurry)
            await asyncio.wait([ending], timeout=CANCELLED_WAIT_S)
            raise
        finally:
            self._is_running = False
            self._coordinates.close()

    def stop(self) -> None:
        """Ask the worker to drain and leave, from any thread; once more: to leave at once."""
        self._stops_asked += 1
        self._ask_driver(Driver.stop if self._stops_asked == 1 else Driver.hurry)

    def __enter__(self) -> Self:
        """Work on a thread for the time of a block."""
        self._background = Background(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._background is not None
        self.stop()
        self._background.wait()

    # --- the driver's thread --------------------------------------------------------------------

    def _drive(self, loop: asyncio.AbstractEventLoop, ended: "Future[StopReason]") -> None:
        try:
            reason = asyncio.run(self._hold(loop))
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for the end
            ended.set_exception(error)
        else:
            ended.set_result(reason)

    async def _hold(self, callback_loop: asyncio.AbstractEventLoop) -> StopReason:
        driver = Driver(
            self._applicant,
            self._functions,
            open_line=self._coordinates.open_line,
            connect=self._coordinates.connect,
            callback_loop=callback_loop,
            now_ms=_now_ms,
            drain_s=self._drain_s,
        )
        self._driver_loop = asyncio.get_running_loop()
        self._driver_loop.set_exception_handler(driver.take_exception)
        self._driver = driver
        if self._stops_asked:
            driver.stop()
        return await driver.run()

    def _ask_driver(self, action: Callable[[Driver], None]) -> None:
        driver, loop = self._driver, self._driver_loop
        if driver is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(action, driver)

    async def _run_with_signals(self) -> StopReason:
        loop = asyncio.get_running_loop()
        try:
            for number in STOPPING:
                loop.add_signal_handler(number, self.stop)
        except (ValueError, RuntimeError):
            return await self.arun()  # not on the main thread, so signals go elsewhere
        try:
            return await self.arun()
        finally:
            for number in STOPPING:
                loop.remove_signal_handler(number)


class Background:
    """A worker on a thread of its own."""

    def __init__(self, worker: ShardWorker) -> None:
        self._worker = worker
        self._ended: Future[StopReason] = Future()
        self._thread = threading.Thread(target=self._run, name="rota-shard-worker", daemon=True)
        self._thread.start()

    def wait(self) -> StopReason:
        """Wait for its end, and raise what ended it."""
        self._thread.join()
        return self._ended.result()

    def _run(self) -> None:
        try:
            self._ended.set_result(asyncio.run(self._worker.arun()))
        except BaseException as error:  # noqa: BLE001 - as in _drive
            self._ended.set_exception(error)


def _checked_applicant(values: dict[str, Any]) -> RegisterMember:
    try:
        return register_event(msgspec.convert(values, RegisterData))
    except msgspec.ValidationError as error:
        raise Invalid(f"a shard worker cannot be set up like this: {error}") from None


def _new_id() -> str:
    suffix = f"-{secrets.token_hex(4)}"
    return socket.gethostname()[: limits.MAX_NAME_LENGTH - len(suffix)] + suffix


def _now_ms() -> int:
    return int(now_s() * 1000)
