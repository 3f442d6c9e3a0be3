import asyncio
import re

import pytest

from rota.core.access import LOCAL, AccessToken, Scope
from rota.errors import Forbidden, Invalid, Unauthorized
from rota.gateways.auth.authenticator import (
    Authenticator,
    hash_of,
    is_loopback,
    new_secret,
    refuse_unsafe_bind,
)
from rota.settings import Settings
from tests.gateways.serving import TurnedClock

SECRET = new_secret()


def token(secret: str = SECRET, **fields: object) -> AccessToken:
    known = {"id": "t1", "name": "ci", "scopes": (Scope.SUBMIT,), "created_at_ms": 0}
    return AccessToken(hash=hash_of(secret), **{**known, **fields})  # type: ignore[arg-type] # fields by name


class Shelf:
    """Where a gate finds its tokens, and how often it looked."""

    def __init__(self, *tokens: AccessToken) -> None:
        self.tokens = list(tokens)
        self.looks = 0

    async def load(self) -> list[AccessToken]:
        self.looks += 1
        return list(self.tokens)


def authenticator(
    shelf: Shelf, clock: TurnedClock | None = None, **settings: object
) -> Authenticator:
    now_ms = (clock or TurnedClock()).now_ms
    return Authenticator(Settings(**settings), shelf.load, now_ms=now_ms)  # type: ignore[arg-type] # settings by name


def test_secrets_have_one_shape_and_are_never_the_same() -> None:
    secrets = {new_secret() for _ in range(100)}

    assert len(secrets) == 100
    assert all(re.fullmatch(r"rota_[A-Za-z0-9_-]{43}", secret) for secret in secrets)


def test_a_stored_hash_does_not_contain_its_secret() -> None:
    stored = token()

    assert SECRET not in repr(stored)
    assert re.fullmatch(r"[0-9a-f]{64}", stored.hash)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST."])
def test_loopback_is_known_by_all_its_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.4", "localhost.evil.example"])
def test_everything_else_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_binding_beyond_loopback_needs_a_token_or_a_flag() -> None:
    with pytest.raises(Invalid) as refusal:
        refuse_unsafe_bind(Settings(host="0.0.0.0"), [])

    assert refusal.value.detail == (
        "binding to 0.0.0.0 needs a token: run `rota token create --scope admin "
        "--store sqlite:///rota.db`, or pass --insecure"
    )
    refuse_unsafe_bind(Settings(host="0.0.0.0"), [token()])
    refuse_unsafe_bind(Settings(host="0.0.0.0", insecure=True), [])
    refuse_unsafe_bind(Settings(host="localhost"), [])


async def test_loopback_is_open_without_a_token() -> None:
    shelf = Shelf()

    assert await authenticator(shelf).identify(None) is LOCAL
    assert shelf.looks == 0


async def test_a_token_is_checked_even_where_none_is_needed() -> None:
    with pytest.raises(Unauthorized):
        await authenticator(Shelf(token())).identify(new_secret())

    caller = await authenticator(Shelf(token())).identify(SECRET)
    assert (caller.name, caller.scopes) == ("ci", (Scope.SUBMIT,))


async def test_beyond_loopback_a_token_is_needed() -> None:
    closed = authenticator(Shelf(token()), host="0.0.0.0")

    with pytest.raises(Unauthorized):
        await closed.identify(None)
    assert (await closed.identify(SECRET)).name == "ci"


@pytest.mark.parametrize(
    "secret",
    ["", "rota_", SECRET[:-1], SECRET + "x", SECRET.upper(), "é"],
    ids=["empty", "prefix", "short", "long", "capitals", "foreign"],
)
async def test_what_is_almost_a_token_opens_nothing(secret: str) -> None:
    with pytest.raises(Unauthorized):
        await authenticator(Shelf(token())).identify(secret)


async def test_a_token_ends_at_its_time() -> None:
    clock = TurnedClock()
    expiring = authenticator(Shelf(token(expires_at_ms=clock.now_ms() + 1_000)), clock)
    await expiring.identify(SECRET)

    clock.turn(1_000)

    with pytest.raises(Unauthorized):
        await expiring.identify(SECRET)


async def test_tokens_are_read_once_and_again_when_they_changed() -> None:
    shelf = Shelf(token())
    remembering = authenticator(shelf)
    for _ in range(3):
        await remembering.identify(SECRET)
    assert shelf.looks == 1

    shelf.tokens.clear()
    remembering.forget_tokens()

    with pytest.raises(Unauthorized):
        await remembering.identify(SECRET)
    assert shelf.looks == 2


async def test_tokens_changed_elsewhere_are_noticed_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = Shelf(token())
    remembering = authenticator(shelf)
    await remembering.identify(SECRET)
    shelf.tokens.clear()

    monkeypatch.setattr(remembering, "_stale_at_s", 0.0)  # the while is over

    with pytest.raises(Unauthorized):
        await remembering.identify(SECRET)


@pytest.mark.parametrize("host", ["localhost:7070", "127.0.0.1", "[::1]:7070", None])
def test_an_open_gate_is_called_by_a_loopback_name(host: str | None) -> None:
    authenticator(Shelf()).check_browser(host=host, origin=None, is_change=True)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7070", "[", "", "10.0.0.1"])
def test_another_host_name_was_pointed_at_us_and_is_refused(host: str) -> None:
    with pytest.raises(Forbidden):
        authenticator(Shelf()).check_browser(host=host, origin=None, is_change=False)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "http://["]
)
def test_a_page_of_another_origin_changes_nothing(origin: str) -> None:
    with pytest.raises(Forbidden):
        authenticator(Shelf()).check_browser(host="localhost:7070", origin=origin, is_change=True)


def test_our_own_pages_may_change_and_foreign_ones_may_look() -> None:
    open_gate = authenticator(Shelf())

    open_gate.check_browser(host="localhost:7070", origin="http://localhost:7070", is_change=True)
    open_gate.check_browser(host="localhost:7070", origin="http://evil.example", is_change=False)


def test_only_an_insecure_gate_warns() -> None:
    assert authenticator(Shelf()).warnings() == []
    assert authenticator(Shelf(), insecure=True).warnings() == []
    assert authenticator(Shelf(), host="0.0.0.0").warnings() == []
    assert "insecure" in authenticator(Shelf(), host="0.0.0.0", insecure=True).warnings()[0]


async def test_loopback_may_be_made_to_ask_for_a_token() -> None:
    with pytest.raises(Unauthorized):
        await authenticator(Shelf(), require_token=True).identify(None)


async def test_a_token_that_is_made_while_others_are_read_is_known_at_once() -> None:
    shelf, reading, go_on = Shelf(), asyncio.Event(), asyncio.Event()

    async def load() -> list[AccessToken]:
        known = await shelf.load()
        reading.set()
        await go_on.wait()
        return known

    door = Authenticator(Settings(require_token=True), load, now_ms=TurnedClock().now_ms)
    first = asyncio.ensure_future(door.identify(new_secret()))
    await reading.wait()

    shelf.tokens.append(token())
    door.forget_tokens()
    second = asyncio.ensure_future(door.identify(SECRET))
    await asyncio.sleep(0)
    go_on.set()

    assert (await second).name == "ci"
    with pytest.raises(Unauthorized):
        await first


async def test_callers_that_come_while_tokens_are_read_for_the_first_time_wait_for_them() -> None:
    is_read = asyncio.Event()

    async def load() -> list[AccessToken]:
        await is_read.wait()
        return [token()]

    door = Authenticator(Settings(require_token=True), load, now_ms=TurnedClock().now_ms)
    callers = [asyncio.create_task(door.identify(SECRET)) for _ in range(3)]
    await asyncio.sleep(0)
    is_read.set()

    assert [caller.name for caller in await asyncio.gather(*callers)] == ["ci"] * 3
