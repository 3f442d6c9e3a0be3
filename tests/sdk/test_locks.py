"""What only one may do at a time: had, waited for, kept, lost, and let go of."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rota import Invalid, LockLost, LockNotAcquired, Rota, Unavailable
from rota.errors import IllegalState, TooMany
from rota.messages.kv import LockRelease, LockView
from rota.node import Node
from rota.sdk import locks
from rota.sdk.client import kv_calls, requests
from rota.sdk.client.client import Client
from rota.sdk.transport.transport import Response, TransportRequest
from rota.store.locks import LockStore
from rota.testing import TestCoordinator
from tests.sdk.serving import PATIENCE_S, Server


def look(app: Rota, name: str = "door") -> LockView:
    return app.client.run(kv_calls.get_lock(name))


def until(app: Rota, is_so: Callable[[LockView], bool]) -> LockView:
    """Wait until the lock stands so; each look is a round trip."""
    for _ in range(100_000):
        view = look(app)
        if is_so(view):
            return view
    raise AssertionError("it never was so")


def take_away(app: Rota) -> None:
    """Release the lock of its holder, as an operator would."""
    view = look(app)
    assert view.holder is not None
    assert view.fence is not None
    release = LockRelease(owner=view.holder, fence=view.fence)
    app.client.run(kv_calls.release_lock("door", release))


@pytest.fixture
def renewed_often(monkeypatch: pytest.MonkeyPatch) -> float:
    """The time of a lock that no busy machine lets run out, and that is renewed every 300 ms."""
    monkeypatch.setattr(locks, "RENEWALS", 100)
    return 30.0


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield


# --- having it ----------------------------------------------------------------------------------


def test_a_lock_is_had_inside_the_block_and_free_after_it(app: Rota) -> None:
    with app.lock("door") as lock:
        assert look(app).fence == lock.fence > 0
        lock.check()
        standings = [lock.is_held]

    standings.append(lock.is_held)
    assert standings == [True, False]
    assert look(app).holder is None


async def test_a_lock_is_had_inside_an_async_block_and_free_after_it(app: Rota) -> None:
    async with app.lock("door") as lock:
        assert look(app).fence == lock.fence > 0
        standings = [lock.is_held]

    standings.append(lock.is_held)
    assert standings == [True, False]
    assert look(app).holder is None


def test_a_lock_can_be_had_again_under_a_higher_fence(app: Rota) -> None:
    lock = app.lock("door")

    fences = []
    for _ in range(3):
        with lock:
            fences.append(lock.fence)

    assert fences == sorted(set(fences))


def test_a_lock_is_not_had_twice_at_once(app: Rota) -> None:
    with app.lock("door") as lock, pytest.raises(Invalid, match="held already"):
        lock.acquire()


def test_without_a_block_a_lock_is_acquired_and_released(app: Rota) -> None:
    lock = app.lock("door").acquire()
    lock.release()

    assert look(app).holder is None
    for wrong in (lock.release, lock.check, lambda: lock.fence):
        with pytest.raises(Invalid, match="is not held"):
            wrong()


@pytest.mark.parametrize("ttl_s", [0, -1, 0.0001, 86_401, float("nan")])
def test_a_time_that_no_lock_can_have_is_refused_here(app: Rota, ttl_s: float) -> None:
    with pytest.raises(Invalid, match="at most 86400 s"):
        app.lock("door", ttl_s=ttl_s)


def test_what_a_block_raises_is_raised_and_the_lock_is_free(app: Rota) -> None:
    with pytest.raises(ZeroDivisionError), app.lock("door"):
        _ = 1 / 0

    assert look(app).holder is None


# --- waiting for it -----------------------------------------------------------------------------


def test_a_lock_that_is_not_had_in_time_says_who_has_it(app: Rota) -> None:
    with app.lock("door"):
        for wait_s in (0, 0.01):
            with pytest.raises(LockNotAcquired, match="lock 'door' is still held by") as refused:
                app.lock("door", wait_s=wait_s).acquire()
            assert (refused.value.lock, refused.value.holder) == ("door", look(app).holder)
            assert isinstance(refused.value, TimeoutError)


async def test_a_lock_that_is_not_had_in_time_is_an_error_on_a_loop_too(app: Rota) -> None:
    async with app.lock("door"):
        with pytest.raises(LockNotAcquired):
            async with app.lock("door", wait_s=0.01):
                pass


def test_whoever_waits_has_it_as_soon_as_it_is_free(app: Rota) -> None:
    with ThreadPoolExecutor(1) as threads:
        with app.lock("door") as first:
            waiting_for_it = threads.submit(app.lock("door").acquire)
            until(app, lambda view: view.waiting == 1)
            fence = first.fence
        second = waiting_for_it.result(PATIENCE_S)

    assert second.fence > fence
    second.release()


async def test_of_many_who_want_it_one_has_it_at_a_time(app: Rota) -> None:
    inside: list[int] = []
    fences: list[int] = []

    async def enter(number: int) -> None:
        async with app.lock("door") as lock:
            inside.append(number)
            fences.append(lock.fence)
            await app.memory.aput("seen", number)
            assert inside == [number]
            inside.clear()

    await asyncio.gather(*(enter(number) for number in range(10)))

    assert fences == sorted(set(fences))
    assert len(fences) == 10


def until_patient(server: Server) -> None:
    """Wait until the first in line has asked to wait for long."""

    async def first_waits_long(node: Node) -> bool:
        lock = await node.coordinator.queries.reader.read(lambda tx: LockStore(tx).get("door"))
        now_ms = node.coordinator.steady_clock.now_ms()
        return bool(lock.waiters) and lock.waiters[0].until_ms > now_ms + 1_000

    while not server.ask(first_waits_long):
        pass


def test_a_wait_of_several_questions_keeps_its_place(
    server: Server, app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first asks again every few milliseconds, the second only once."""
    order: list[str] = []

    def enter(name: str) -> None:
        with app.lock("door"):
            order.append(name)

    with ThreadPoolExecutor(2) as threads:
        with app.lock("door"):
            monkeypatch.setattr(requests, "WAIT_MS", 20)
            first = threads.submit(enter, "first")
            until(app, lambda view: view.waiting == 1)
            until(app, lambda view: view.waiting == 0)  # between two questions
            monkeypatch.setattr(requests, "WAIT_MS", 30_000)
            second = threads.submit(enter, "second")
            until(app, lambda view: view.waiting == 2)
            until_patient(server)
        for one in (first, second):
            one.result(PATIENCE_S)

    assert order == ["first", "second"]


async def test_a_wait_that_is_cancelled_holds_nobody_up(app: Rota) -> None:
    async with app.lock("door"):
        gone = asyncio.create_task(app.lock("door").aacquire())
        await asyncio.to_thread(until, app, lambda view: view.waiting == 1)
        gone.cancel()
        await asyncio.to_thread(until, app, lambda view: view.waiting == 0)

    async with app.lock("door", wait_s=0) as lock:
        assert lock.is_held


def test_a_wait_outlives_the_coordinator(server: Server, app: Rota) -> None:
    with ThreadPoolExecutor(1) as threads:
        first = app.lock("door").acquire()
        waiting_for_it = threads.submit(app.lock("door").acquire)
        until(app, lambda view: view.waiting == 1)

        server.stop()
        server.start()
        until(app, lambda view: view.waiting == 1)
        first.release()

        second = waiting_for_it.result(PATIENCE_S)
    assert second.is_held
    second.release()


def test_a_coordinator_that_is_not_there_is_told(server: Server, app: Rota) -> None:
    server.stop()

    with pytest.raises(Unavailable):
        app.lock("door", wait_s=0).acquire()


def test_a_line_that_is_full_is_waited_for_too(app: Rota, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.core.limits.MAX_LOCK_WAITERS", 0)
    with app.lock("door"), pytest.raises(TooMany):
        app.lock("door", wait_s=0.05).acquire()


# --- keeping it ---------------------------------------------------------------------------------


def test_a_lock_is_kept_for_as_long_as_the_block_lasts(app: Rota, renewed_often: float) -> None:
    with app.lock("door", ttl_s=renewed_often) as lock:
        first = look(app).expires_at_ms or 0
        until(app, lambda view: (view.expires_at_ms or 0) > first + 600)
        assert lock.is_held
        assert look(app).fence == lock.fence


async def test_a_lock_is_kept_on_a_loop_too(app: Rota, renewed_often: float) -> None:
    async with app.lock("door", ttl_s=renewed_often) as lock:
        first = look(app).expires_at_ms or 0
        later = await asyncio.to_thread(
            until, app, lambda view: (view.expires_at_ms or 0) > first + 600
        )
        assert later.fence == lock.fence


def test_a_lock_that_was_taken_away_is_told_of_inside_the_block_and_at_its_end(
    app: Rota, renewed_often: float
) -> None:
    told: Future[LockLost] = Future()

    def block() -> None:
        with app.lock("door", ttl_s=renewed_often, on_lost=told.set_result) as lock:
            fence = lock.fence
            take_away(app)
            assert told.result(PATIENCE_S).facts["fence"] == fence
            assert not lock.is_held
            with pytest.raises(LockLost):
                lock.check()
            assert lock.fence == fence  # the resource that is written to refuses it

    with pytest.raises(LockLost, match="lock 'door' is not held"):
        block()


async def test_a_lock_that_was_taken_away_is_told_of_on_a_loop_too(
    app: Rota, renewed_often: float
) -> None:
    told: asyncio.Future[LockLost] = asyncio.get_running_loop().create_future()

    async def block() -> None:
        async with app.lock("door", ttl_s=renewed_often, on_lost=told.set_result) as lock:
            await asyncio.to_thread(take_away, app)
            await asyncio.wait_for(told, PATIENCE_S)
            assert not lock.is_held

    with pytest.raises(LockLost):
        await block()


async def test_what_a_block_raises_counts_for_more_than_the_loss(app: Rota) -> None:
    def block() -> None:
        with app.lock("door"):
            take_away(app)
            _ = 1 / 0

    async def async_block() -> None:
        async with app.lock("door"):
            await asyncio.to_thread(take_away, app)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        block()
    with pytest.raises(ZeroDivisionError):
        await async_block()


async def test_a_lock_may_be_let_go_of_before_the_block_ends(app: Rota) -> None:
    with app.lock("door") as lock:
        lock.release()
        assert look(app).holder is None
    async with app.lock("door") as lock:
        await lock.arelease()
        assert look(app).holder is None


def test_a_lock_that_cannot_be_renewed_is_lost_when_its_time_is_over(
    server: Server, app: Rota
) -> None:
    told: Future[LockLost] = Future()
    lock = app.lock("door", ttl_s=0.4, on_lost=told.set_result).acquire()

    server.stop()

    told.result(PATIENCE_S)
    assert not lock.is_held
    with pytest.raises(LockLost):
        lock.release()


def test_a_lock_is_kept_through_a_short_absence_of_the_coordinator(
    server: Server, app: Rota
) -> None:
    with app.lock("door", ttl_s=20) as lock:
        server.stop()
        server.start()
        assert lock.is_held
        assert look(app).fence == lock.fence


# --- answers that are lost ----------------------------------------------------------------------


class Forgetful:
    """A way to the coordinator on which the answer to some calls is lost, once each."""

    def __init__(self, client: Client, *verbs: str) -> None:
        self._inner = client.transport
        self._verbs = list(verbs)
        self.address = self._inner.address
        self.is_embedded = False
        self.sent: list[str] = []

    def send(self, request: TransportRequest) -> Response:
        response = self._inner.send(request)
        verb = request.path.rpartition("/")[2]
        self.sent.append(verb)
        if verb in self._verbs:
            self._verbs.remove(verb)
            raise Unavailable("the answer was lost")
        return response

    async def asend(self, request: TransportRequest) -> Response:
        return self.send(request)

    def close(self) -> None:
        """Closed by the maker of the inner one."""


@pytest.fixture
def forgetful(app: Rota) -> Iterator[Callable[..., tuple[Rota, Forgetful]]]:
    other = Rota("http://127.0.0.1:1")

    def make(*verbs: str) -> tuple[Rota, Forgetful]:
        transport = Forgetful(app.client, *verbs)
        other.use(Client(transport, repeat_after_s=(0.0,)))
        return other, transport

    yield make
    other.reset()


def test_a_lock_whose_first_answer_was_lost_is_had_once(
    app: Rota, forgetful: Callable[..., tuple[Rota, Forgetful]]
) -> None:
    other, transport = forgetful("acquire")

    with other.lock("door") as lock:
        assert look(app).fence == lock.fence

    assert transport.sent == ["acquire", "acquire", "release"]


def test_a_release_whose_answer_was_lost_is_none_of_a_lost_lock(
    app: Rota, forgetful: Callable[..., tuple[Rota, Forgetful]]
) -> None:
    other, transport = forgetful("release")

    with other.lock("door"):
        pass

    assert transport.sent == ["acquire", "release", "release"]
    assert look(app).holder is None


def test_a_release_that_is_never_answered_leaves_the_lock_to_its_time(
    forgetful: Callable[..., tuple[Rota, Forgetful]],
) -> None:
    other, transport = forgetful("release", "release")

    with capture_logs() as log, other.lock("door"):
        pass

    assert transport.sent == ["acquire", "release", "release"]
    assert [line["event"] for line in log] == ["lock_release_failed"]


async def test_answers_are_lost_on_a_loop_too(
    app: Rota, forgetful: Callable[..., tuple[Rota, Forgetful]]
) -> None:
    other, transport = forgetful("acquire", "release")

    async with other.lock("door") as lock:
        assert look(app).fence == lock.fence

    assert transport.sent == ["acquire", "acquire", "release", "release"]


# --- wherever the coordinator is ----------------------------------------------------------------


async def test_an_embedded_coordinator_has_locks_too(tmp_path: Path) -> None:
    with Rota(f"sqlite:///{tmp_path / 'own.db'}") as app:
        with app.lock("door") as lock:
            with pytest.raises(LockNotAcquired):
                app.lock("door", wait_s=0.01).acquire()
            first = lock.fence
        async with app.lock("door") as lock:
            assert lock.fence > first


def test_the_coordinator_of_a_test_says_that_waiting_is_in_vain() -> None:
    app = Rota("http://127.0.0.1:1")
    with TestCoordinator() as coordinator:
        coordinator.attach(app)
        lock = app.lock("door").acquire()
        with pytest.raises(IllegalState, match="a test cannot wait for it"):
            app.lock("door").acquire()
        with pytest.raises(LockNotAcquired):
            app.lock("door", wait_s=0).acquire()
        fence = lock.fence

        coordinator.clock.advance(seconds=30)

        with app.lock("door") as other:
            assert other.fence > fence
        with pytest.raises(LockLost):
            lock.release()
