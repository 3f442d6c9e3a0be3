"""Every route and every message, for every scope and every kind of token, over real sockets."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from websockets.exceptions import InvalidStatus

from rota.gateways.websocket.session.dispatcher import ROUTES
from tests.gateways.access import oracle
from tests.gateways.access.oracle import HTTP, MESSAGES, PAGES, SCOPES, Place, Reach, Rule, filled
from tests.gateways.access.tenants import (
    Headers,
    Holder,
    World,
    leaked,
    open_socket,
    secured,
)
from tests.gateways.serving import served

LEAST_HTTP_CELLS, LEAST_SOCKET_CELLS = 2_500, 500
OUTSIDE = (Holder.REVOKED, Holder.EXPIRED, Holder.NOBODY)
BOUND_TO_A = (Holder.BOUND, Holder.SERVICE_ONLY)


class Cell(NamedTuple):
    rule: Rule
    scope: str
    holder: Holder
    is_own: bool

    @property
    def id(self) -> str:
        aim = "own" if self.is_own else "other"
        return f"{self.rule.route} | {self.scope} | {self.holder.value} | {aim}"


# --- what is to be ------------------------------------------------------------------------------


def cells_of(rule: Rule) -> Iterator[Cell]:
    for holder in Holder:
        for scope in SCOPES if holder is not Holder.NOBODY else SCOPES[:1]:
            yield from (
                cell
                for is_own in (True, False)
                if is_meant(cell := Cell(rule, scope, holder, is_own))
            )


def is_meant(cell: Cell) -> bool:
    """Whether a rule says anything about this combination."""
    rule, reach = cell.rule, cell.rule.reach
    if cell.holder in {Holder.UNBOUND, *OUTSIDE}:
        return cell.is_own
    if cell.holder is Holder.SERVICE_ONLY and reach is Reach.WORKER:
        return not cell.is_own  # it has no queue, and so no worker of its own
    if cell.holder is Holder.PINNED:
        # A worker id alone says only as which worker the token may act.
        is_of_worker = reach in {Reach.WORKER, Reach.MEMBER}
        return cell.is_own or (is_of_worker and rule.scopes != oracle.READERS)
    return cell.is_own or reach not in {Reach.OPEN, Reach.ANY, Reach.LISTED}


def effective_scopes(cell: Cell) -> set[str]:
    """A token that is bound is never an operator's: its `admin` is no more than these."""
    is_limited = cell.scope == "admin" and cell.holder is not Holder.UNBOUND
    return {"submit", "worker"} if is_limited else {cell.scope}


def expected(cell: Cell) -> str:  # noqa: PLR0911 - one line for each rule
    rule, holder = cell.rule, cell.holder
    match rule.reach:
        case Reach.OPEN:
            return "allowed"
        case _ if holder in OUTSIDE:
            return "unauthorized"
        case _ if not effective_scopes(cell) & {*rule.scopes}:
            return "refused"
        case _ if holder is Holder.UNBOUND:
            return "allowed"
        case Reach.ANY | Reach.LISTED:
            return "allowed"
        case Reach.SHARED:
            return "refused" if holder in BOUND_TO_A else "allowed"
        case Reach.QUEUE if holder is Holder.SERVICE_ONLY:
            return "refused"
        case _:
            return "allowed" if cell.is_own else "refused"


def faults(cell: Cell, got: str, answer: str, request: str) -> Iterator[str]:
    """What is wrong with an answer."""
    wanted = expected(cell)
    # A list of what a token has may be refused to one that can have nothing of it.
    is_empty_handed = cell.holder is Holder.SERVICE_ONLY and cell.rule.reach is Reach.LISTED
    if got != wanted and not (is_empty_handed and got == "refused"):
        yield f"{got} instead of {wanted}"
    if cell.holder in BOUND_TO_A and (told := leaked(answer, request)):
        yield f"told of {sorted(told)}"


# --- asking -------------------------------------------------------------------------------------


async def ask_http(world: World, cell: Cell) -> list[str]:
    rule, place = cell.rule, await _place(world, cell)
    who: Headers = world.tokens[cell.holder, cell.scope]
    method = rule.route.partition(" ")[0]
    path, body = filled(rule.path, place), filled(rule.body, place)
    more: dict[str, Any] = {} if body is None else {"json": body}
    if rule.text is not None:
        more["content"] = rule.text
    answer = await world.client.request(method, path, headers=who, **more)
    world.client.cookies.clear()  # a login must not speak for the next request
    status = answer.status_code
    got = {401: "unauthorized", 403: "refused"}.get(status, "allowed")
    if status == 404 and rule.is_hidden and expected(cell) == "refused":
        got = "refused"
    told = secured(answer) if answer.request.url.path.startswith("/api") else answer.text
    found = list(faults(cell, got, told, f"{path} {json.dumps(body)}"))
    if got == expected(cell) == "allowed" and status not in rule.answers:
        found.append(f"{status} is not one of {rule.answers}: {answer.text[:300]}")
    return found


async def _place(world: World, cell: Cell) -> Place:
    if not cell.is_own:
        return world.other
    if cell.rule.before and expected(cell) == "allowed":
        await world.make(cell.rule.before, cell.holder, cell.scope)
    return world.own[cell.holder]


async def ask_socket(world: World, cell: Cell) -> list[str]:
    rule, place = cell.rule, await _place(world, cell)
    who = world.tokens[cell.holder, cell.scope]
    request = {"to": filled(rule.path, place), "payload": filled(rule.body, place)}
    try:
        peer = await open_socket(world, who)
    except InvalidStatus as refused:
        got = {401: "unauthorized", 403: "refused"}[refused.response.status_code]
        return list(faults(cell, got, str(refused.response.body), json.dumps(request)))
    reply = await peer.reply(await peer.say(rule.route, **request))
    everything = [reply, *await peer.quiet()]
    await peer.socket.close()
    code = reply["payload"].get("code", "")
    got = "refused" if code == "forbidden" else "allowed"
    if code.endswith("_not_found") and rule.is_hidden and expected(cell) == "refused":
        got = "refused"
    return list(faults(cell, got, str(everything), json.dumps(request)))


# --- the matrix ---------------------------------------------------------------------------------


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with served(tmp_path, store="sqlite://", zmq_port=None, require_token=True) as api:
        made = World(api)
        await made.build()
        yield made


Ask = Callable[[World, Cell], Awaitable[list[str]]]


async def check_all(world: World, rules: Iterable[Rule], ask: Ask) -> int:
    """Ask for every cell; the number of cells."""
    cells = [cell for rule in rules for cell in cells_of(rule)]
    before = await world.state_of_b()
    wrong = [(cell, text) for cell in cells for text in await ask(world, cell)]
    report(wrong)
    assert await world.state_of_b() == before
    return len(cells)


def report(wrong: list[tuple[Cell, str]]) -> None:
    """Fail with every cell that is wrong."""
    if wrong:
        pytest.fail("\n".join(f"{cell.id}: {text}" for cell, text in wrong), pytrace=False)


async def test_every_route_keeps_to_the_oracle_for_every_token(world: World) -> None:
    assert await check_all(world, (*HTTP, *PAGES), ask_http) >= LEAST_HTTP_CELLS


async def test_every_message_keeps_to_the_oracle_for_every_token(world: World) -> None:
    owner = await open_socket(world, world.headers_b)
    await owner.register(world.other["socket_worker"], f"coordinator:{world.other['queue']}")

    count = await check_all(world, MESSAGES, ask_socket)

    await owner.socket.close()
    assert count >= LEAST_SOCKET_CELLS


async def test_every_route_has_a_row_in_the_oracle(world: World) -> None:
    document = (await world.client.get("/openapi.json")).json()
    routes = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }

    assert routes == {rule.route for rule in HTTP}
    assert len(HTTP) == len(routes)


def test_every_message_has_a_row_in_the_oracle() -> None:
    assert sorted(route.type for route in ROUTES) == sorted(rule.route for rule in MESSAGES)
