"""The `ShardWorker`, which a program starts to be assigned shards.

    ShardWorker("feed", shards=64, on_assigned=begin, on_revoked=end, on_lost=drop).run()

`run` blocks until the worker is stopped: by a signal (the first drains, the second quits at once)
or by `stop` from another thread. It returns the reason.
"""

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, Self

import msgspec

from rota.core import limits
from rota.core.shards.commands import RegisterMember
from rota.core.shards.members import PROTOCOL
from rota.errors import Invalid
from rota.messages.shards import RegisterData, register_command
from rota.sdk.options.durations import Seconds, seconds
from rota.sdk.shards.callbacks import Callback
from rota.sdk.shards.connect_options import ConnectOptions
from rota.sdk.shards.driver import ShardDriver
from rota.sdk.shards.held import HeldShard
from rota.sdk.shards.slots import UserCallbacks
from rota.sdk.timing import now_s
from rota.sdk.worker.stopping import StopReason, run_with_signals
from rota.tls import Verify

DRAIN_S = 30.0
CANCELLED_WAIT_S = 3.0  # how long a cancelled `arun` waits for the worker to leave


class ShardWorker:
    """Holds as many shards of a service as the coordinator assigns to it.

    `shards` is how many shards the service has. Callbacks get a `HeldShard`. Plain functions run
    in threads, coroutine functions on the event loop of `arun` (`run` has one of its own).
    Callbacks of one shard run one after the other, those of several shards side by side, up to
    128 at once. None of them can delay the worker's heartbeat.

    `on_assigned` begins the work on a shard, and returns. When it raises, the worker logs the error
    and calls it again after a pause; until it returns, no worker acts on the shard and `is_held` is
    false. `failing` lists such shards with their errors.
    `on_revoked` ends the work in good order. The worker still holds the shard; another worker gets
    it as soon as the callback has returned or raised.
    `on_lost` ends the work after the lease is over: another worker may have the shard already, so
    nothing may be done for it any more. It is called after a running callback of the shard has
    returned. The worker registers again when all callbacks have returned.

    With `zmq`, or `ROTA_ZMQ`, the worker uses ZeroMQ with that address (`zmq=""` prevents it), with
    CURVE keys if it has them (`ROTA_ZMQ_PUBLIC_KEY`, `ROTA_ZMQ_SECRET_KEY`, `ROTA_ZMQ_SERVER_KEY`);
    checkpoints still use HTTP. Otherwise it uses HTTP with `url`, `ROTA_URL`, or an embedded
    coordinator; `verify` is as in `Rota`. Shards are assigned in proportion to `weight`, and at
    most `max_shards`. A worker that comes back under its `worker_id` before its lease is over gets
    its old shards. `drain_s` is the time that callbacks get to give shards up after a stop.
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
        verify: Verify = True,
        zmq: str | None = None,
        zmq_public_key: str | None = None,
        zmq_secret_key: str | None = None,
        zmq_server_key: str | None = None,
        weight: float = 1.0,
        max_shards: int | None = None,
        drain_s: Seconds = DRAIN_S,
    ) -> None:
        self._drain_s = seconds(drain_s, "drain_s")
        if self._drain_s < 0:
            raise Invalid("drain_s is a time in seconds: 0 or more")
        self.service = service
        self.worker_id = worker_id or _new_id()
        self._user_callbacks = UserCallbacks(on_assigned, on_revoked, on_lost)
        self._options = ConnectOptions(
            url=url,
            token=token,
            verify=verify,
            zmq=zmq,
            zmq_public_key=zmq_public_key,
            zmq_secret_key=zmq_secret_key,
            zmq_server_key=zmq_server_key,
        )
        self._registration = _checked_registration(
            {
                "serviceName": service,
                "workerId": self.worker_id,
                "maxShardCount": shards,
                "protocol": PROTOCOL,
                "weight": weight,
                "maxShards": max_shards,
            }
        )
        self._driver: ShardDriver | None = None
        self._driver_loop: asyncio.AbstractEventLoop | None = None
        self._is_running = False
        self._stops_requested = 0
        self._background: Future[StopReason] | None = None

    @property
    def held(self) -> dict[int, HeldShard]:
        """The shards for which `on_assigned` has returned, by number."""
        membership = None if self._driver is None else self._driver.membership
        return {} if membership is None else membership.slots.active()

    @property
    def failing(self) -> dict[int, BaseException]:
        """The shards for which `on_assigned` has raised, by number, with the error."""
        membership = None if self._driver is None else self._driver.membership
        return {} if membership is None else membership.slots.failing()

    def run(self) -> StopReason:
        """Work on this thread until stopped; on the main thread by SIGTERM and SIGINT too."""
        with asyncio.Runner() as runner:
            return runner.run(run_with_signals(self.arun, self.stop))

    async def arun(self) -> StopReason:
        """Work until stopped. Coroutine callbacks run on this loop; the caller handles signals."""
        if self._is_running:
            raise Invalid("this worker is running already; make another `ShardWorker`")
        self._is_running = True
        drive = partial(self._drive, asyncio.get_running_loop())
        ended = asyncio.wrap_future(_run_on_thread(drive, "rota-shard-driver"))
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._ask_driver(ShardDriver.hurry)
            await asyncio.wait([ended], timeout=CANCELLED_WAIT_S)
            raise
        finally:
            self._is_running = False
            self._options.close()

    def stop(self) -> None:
        """Drain and leave; the second call leaves at once. Callable from any thread."""
        self._stops_requested += 1
        self._ask_driver(ShardDriver.stop if self._stops_requested == 1 else ShardDriver.hurry)

    def __enter__(self) -> Self:
        """Work on a thread for the time of a block."""
        self._background = _run_on_thread(self.arun, "rota-shard-worker")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._background is not None
        self.stop()
        self._background.result()

    async def _drive(self, callback_loop: asyncio.AbstractEventLoop) -> StopReason:
        driver = ShardDriver(
            self._registration,
            self._user_callbacks,
            open_transport=self._options.open_transport,
            connect=self._options.connect,
            callback_loop=callback_loop,
            now_ms=lambda: int(now_s() * 1000),
            drain_s=self._drain_s,
        )
        self._driver_loop = asyncio.get_running_loop()
        self._driver_loop.set_exception_handler(driver.take_exception)
        self._driver = driver
        if self._stops_requested:
            driver.stop()
        return await driver.run()

    def _ask_driver(self, action: Callable[[ShardDriver], None]) -> None:
        driver, loop = self._driver, self._driver_loop
        if driver is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(action, driver)


def _run_on_thread(
    make: Callable[[], Coroutine[Any, Any, StopReason]], name: str
) -> Future[StopReason]:
    """Run a coroutine on the event loop of a new thread, with the caller's context variables."""
    ended: Future[StopReason] = Future()

    def work() -> None:
        try:
            reason = asyncio.run(make())
        except BaseException as error:  # noqa: BLE001 - the waiter raises it
            ended.set_exception(error)
        else:
            ended.set_result(reason)

    threading.Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()
    return ended


def _checked_registration(values: dict[str, Any]) -> RegisterMember:
    try:
        return register_command(msgspec.convert(values, RegisterData))
    except msgspec.ValidationError as error:
        raise Invalid(f"the shard worker's options are not valid: {error}") from None


def _new_id() -> str:
    suffix = f"-{secrets.token_hex(4)}"
    return socket.gethostname()[: limits.MAX_NAME_LENGTH - len(suffix)] + suffix
