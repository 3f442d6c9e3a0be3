from contextlib import nullcontext
from typing import Any

import pytest

from rota.core.access import (
    ALLOWED,
    LOCAL,
    AccessToken,
    Action,
    Caller,
    Scope,
    caller_of,
    check,
    check_bindable,
    check_grant,
    check_queue,
    check_service,
    check_unbound,
    check_worker,
    is_expired,
)
from rota.errors import Forbidden, Invalid

EXPECTED = {
    Scope.ADMIN: set(Action),
    Scope.SUBMIT: {
        Action.SUBMIT,
        Action.READ,
        Action.FOLLOW,
        Action.KEEP,
        Action.RECALL,
        Action.SCALE,
    },
    Scope.READ: {Action.READ, Action.FOLLOW, Action.RECALL, Action.SCALE},
    Scope.WORKER: {
        Action.WORK,
        Action.DEPLOY,
        Action.FOLLOW,
        Action.KEEP,
        Action.RECALL,
        Action.SCALE,
    },
}


def caller(*scopes: Scope, queues: tuple[str, ...] | None = None) -> Caller:
    return Caller(name="c", scopes=scopes, queues=queues)


def is_allowed(who: Caller, action: Action) -> bool:
    try:
        check(who, action)
    except Forbidden:
        return False
    return True


def test_every_scope_says_what_it_opens() -> None:
    assert ALLOWED == EXPECTED


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("scope", list(Scope))
def test_a_scope_opens_what_it_lists_and_nothing_else(scope: Scope, action: Action) -> None:
    assert is_allowed(caller(scope), action) == (action in EXPECTED[scope])


@pytest.mark.parametrize("action", list(Action))
def test_a_caller_without_scopes_may_do_nothing(action: Action) -> None:
    with pytest.raises(Forbidden, match=f"'c' may not {action.value}"):
        check(caller(), action)


@pytest.mark.parametrize("action", list(Action))
def test_the_local_caller_may_do_everything(action: Action) -> None:
    check(LOCAL, action)
    check_queue(LOCAL, "any")
    check_worker(LOCAL, "any")


def test_scopes_add_up() -> None:
    both = caller(Scope.SUBMIT, Scope.WORKER)

    assert {action for action in Action if is_allowed(both, action)} == {
        Action.SUBMIT,
        Action.READ,
        Action.WORK,
        Action.DEPLOY,
        Action.FOLLOW,
        Action.KEEP,
        Action.RECALL,
        Action.SCALE,
    }


def test_a_token_bound_to_queues_acts_on_no_other() -> None:
    bound = caller(Scope.WORKER, queues=("mail",))

    check_queue(bound, "mail")
    with pytest.raises(Forbidden, match="not for queue 'film'"):
        check_queue(bound, "film")
    with pytest.raises(Forbidden):
        check_queue(caller(Scope.WORKER, queues=()), "mail")


def test_a_token_bound_to_queues_or_services_has_no_part_in_what_all_share() -> None:
    of_services = AccessToken(
        id="t", hash="h", name="n", scopes=(Scope.WORKER,), services=("feed",), created_at_ms=0
    )

    check_unbound(caller(Scope.WORKER), "values")
    check_unbound(Caller(name="c", scopes=(Scope.WORKER,), worker_id="w1"), "values")
    for bound in (caller(Scope.WORKER, queues=("mail",)), caller_of(of_services)):
        with pytest.raises(Forbidden, match="values are shared by all"):
            check_unbound(bound, "values")


def test_a_token_bound_to_a_worker_acts_for_no_other() -> None:
    bound = Caller(name="c", scopes=(Scope.WORKER,), worker_id="w1")

    check_worker(bound, "w1")
    with pytest.raises(Forbidden, match="bound to worker 'w1'"):
        check_worker(bound, "w2")


def test_a_caller_is_what_its_token_says() -> None:
    token = AccessToken(
        id="t",
        hash="h",
        name="n",
        scopes=(Scope.WORKER,),
        queues=("mail",),
        worker_id="w1",
        created_at_ms=0,
    )

    assert caller_of(token) == Caller(
        token_id="t",
        name="n",
        scopes=(Scope.WORKER,),
        queues=("mail",),
        services=(),
        worker_id="w1",
    )


def test_tokens_bound_to_the_same_things_share_one_binding() -> None:
    first = Caller(token_id="a", name="a", scopes=(Scope.WORKER,), queues=("x", "y"), services=())
    rotated = Caller(token_id="b", name="b", scopes=(Scope.READ,), queues=("y", "x"), services=())
    other = Caller(token_id="c", name="c", scopes=(Scope.WORKER,), queues=("x",), services=())
    of_worker = Caller(token_id="d", name="d", scopes=(Scope.WORKER,), worker_id="w1")

    assert first.binding == rotated.binding
    assert len({first.binding, other.binding, of_worker.binding, LOCAL.binding}) == 4
    assert (LOCAL.binding, LOCAL.is_bound, of_worker.is_bound) == ("", False, True)


@pytest.mark.parametrize(
    ("queues", "services", "may_use_queue", "may_use_service"),
    [
        (None, None, True, True),
        (("mail",), None, True, False),
        (None, ("feed",), False, True),
        (("mail",), ("feed",), True, True),
        (("other",), ("other",), False, False),
    ],
)
def test_a_token_bound_to_one_kind_alone_is_for_nothing_of_the_other(
    queues: tuple[str, ...] | None,
    services: tuple[str, ...] | None,
    *,
    may_use_queue: bool,
    may_use_service: bool,
) -> None:
    token = AccessToken(
        id="t",
        hash="h",
        name="n",
        scopes=(Scope.WORKER,),
        queues=queues,
        services=services,
        created_at_ms=0,
    )
    caller = caller_of(token)

    for refuse, name, is_allowed in (
        (check_queue, "mail", may_use_queue),
        (check_service, "feed", may_use_service),
    ):
        with nullcontext() if is_allowed else pytest.raises(Forbidden, match="is not for"):
            refuse(caller, name)


@pytest.mark.parametrize(("expires_at_ms", "expected"), [(None, False), (11, False), (10, True)])
def test_a_token_expires_at_its_moment(
    expires_at_ms: int | None,
    expected: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    token = AccessToken(
        id="t", hash="h", name="n", scopes=(), created_at_ms=0, expires_at_ms=expires_at_ms
    )

    assert is_expired(token, now_ms=10) is expected


# --- tokens that make tokens --------------------------------------------------------------------


def made(*scopes: Scope, **bound: Any) -> AccessToken:
    return AccessToken(id="t", hash="h", name="n", scopes=scopes, created_at_ms=0, **bound)


BOUND: list[dict[str, Any]] = [{"queues": ("a",)}, {"services": ("s",)}, {"worker_id": "w"}]


@pytest.mark.parametrize("bound", BOUND)
def test_an_admin_that_is_bound_is_refused_and_no_operator(bound: dict[str, Any]) -> None:
    token = made(Scope.READ, Scope.ADMIN, **bound)

    with pytest.raises(Invalid, match="cannot be bound"):
        check_bindable(token)
    who = caller_of(token)
    assert who.scopes == (Scope.READ, Scope.SUBMIT, Scope.WORKER)
    assert (is_allowed(who, Action.OPERATE), who.is_operator) == (False, False)


def test_an_admin_that_is_not_bound_is_an_operator() -> None:
    check_bindable(made(Scope.ADMIN))
    assert caller_of(made(Scope.ADMIN)).is_operator
    assert LOCAL.is_operator
    assert not caller_of(made(Scope.SUBMIT, Scope.WORKER)).is_operator


@pytest.mark.parametrize(
    ("own", "given", "field"),
    [
        (made(Scope.READ), made(Scope.ADMIN), "scopes"),
        (made(Scope.READ), made(Scope.WORKER), "scopes"),
        (made(Scope.READ, queues=("a",)), made(Scope.READ), "queues"),
        (made(Scope.READ, queues=("a",)), made(Scope.READ, queues=("a", "b")), "queues"),
        (made(Scope.READ, queues=("a",)), made(Scope.READ, services=("s",)), "services"),
        (made(Scope.READ, services=("s",)), made(Scope.READ, services=("t",)), "services"),
        (made(Scope.WORKER, worker_id="w"), made(Scope.WORKER), "worker_id"),
        (made(Scope.WORKER, worker_id="w"), made(Scope.WORKER, worker_id="v"), "worker_id"),
        (made(Scope.READ, expires_at_ms=9), made(Scope.READ), "expires_in_ms"),
        (made(Scope.READ, expires_at_ms=9), made(Scope.READ, expires_at_ms=10), "expires_in_ms"),
    ],
)
def test_no_token_makes_one_that_opens_more(
    own: AccessToken, given: AccessToken, field: str
) -> None:
    with pytest.raises(Forbidden) as refused:
        check_grant(caller_of(own), given)

    assert refused.value.facts["field"] == field


@pytest.mark.parametrize(
    ("own", "given"),
    [
        (made(Scope.ADMIN), made(Scope.ADMIN)),
        (made(Scope.ADMIN), made(Scope.WORKER, queues=("a",), worker_id="w")),
        (made(Scope.SUBMIT), made(Scope.READ)),
        (made(Scope.READ, queues=("a", "b")), made(Scope.READ, queues=("a",))),
        (made(Scope.READ, expires_at_ms=9), made(Scope.READ, expires_at_ms=9)),
    ],
)
def test_a_token_makes_one_that_opens_as_much_or_less(own: AccessToken, given: AccessToken) -> None:
    check_grant(caller_of(own), given)
