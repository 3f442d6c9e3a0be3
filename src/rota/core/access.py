"""Access tokens: their scopes and bindings, and the actions that these allow.

Deny by default: an action that no scope of the caller lists is refused.
"""

from enum import StrEnum
from functools import lru_cache

import msgspec
from msgspec import Struct

from rota.errors import Forbidden, Invalid


class Scope(StrEnum):
    ADMIN = "admin"  # everything; of a token that is bound, no more than submit and worker
    SUBMIT = "submit"  # submit, cancel and read tasks; start, steer and read runs
    READ = "read"  # read, change nothing
    WORKER = "worker"  # register, lease, report; may be bound to queues, services and a worker id


class Action(StrEnum):
    READ = "read"  # read tasks, workers, queues, workflows, runs, services, metrics
    SUBMIT = "submit"  # submit, cancel or retry tasks; start, steer or signal runs
    WORK = "work"  # register, beat, lease, report, attach artifacts, keep checkpoints
    KEEP = "keep"  # put and delete values; acquire, renew and release locks
    RECALL = "recall"  # read values and locks
    DEPLOY = "deploy"  # put workflows that are functions
    FOLLOW = "follow"  # read the log of a function; a worker only of those that it runs
    SCALE = "scale"  # see how much work waits, and how many workers it wants
    OPERATE = "operate"  # pause queues, drain workers, put workflows and services, manage tokens


ALLOWED: dict[Scope, frozenset[Action]] = {
    Scope.ADMIN: frozenset(Action),
    Scope.SUBMIT: frozenset(
        {Action.SUBMIT, Action.READ, Action.FOLLOW, Action.KEEP, Action.RECALL, Action.SCALE}
    ),
    Scope.READ: frozenset({Action.READ, Action.FOLLOW, Action.RECALL, Action.SCALE}),
    Scope.WORKER: frozenset(
        {Action.WORK, Action.DEPLOY, Action.FOLLOW, Action.KEEP, Action.RECALL, Action.SCALE}
    ),
}


class AccessToken(Struct, frozen=True, kw_only=True):
    """A token as it is stored: its hash, never itself."""

    id: str
    hash: str
    name: str
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...] | None = None
    services: tuple[str, ...] | None = None
    worker_id: str | None = None
    created_at_ms: int
    expires_at_ms: int | None = None


class Caller(Struct, frozen=True, kw_only=True):
    """The identity and the rights of the peer that sent a request."""

    name: str
    scopes: tuple[Scope, ...]
    token_id: str | None = None  # None: the caller presented no token
    queues: tuple[str, ...] | None = None  # None: any
    services: tuple[str, ...] | None = None  # None: any
    worker_id: str | None = None  # None: any
    expires_at_ms: int | None = None  # None: never

    @property
    def is_bound(self) -> bool:
        """Whether the token reaches only some queues, services or one worker id."""
        return not (self.queues is None and self.services is None and self.worker_id is None)

    @property
    def binding(self) -> str:
        """The binding of the token as one comparable text; empty for an unbound caller.

        Two tokens with the same binding are the same tenant: a rotated token keeps what its
        predecessor owned.
        """
        if not self.is_bound:
            return ""
        return _binding_of(self.queues, self.services, self.worker_id)

    @property
    def is_operator(self) -> bool:
        """Whether the caller may do everything: an admin that is bound to nothing."""
        return Scope.ADMIN in self.scopes and not self.is_bound


@lru_cache(maxsize=4_096)  # asked for with every call of a worker
def _binding_of(
    queues: tuple[str, ...] | None, services: tuple[str, ...] | None, worker_id: str | None
) -> str:
    parts = (_sorted(queues), _sorted(services), worker_id)
    return msgspec.json.encode(parts).decode()


def _sorted(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else sorted(set(names))


LOCAL = Caller(name="local", scopes=(Scope.ADMIN,))


BOUND_ADMIN = (Scope.SUBMIT, Scope.WORKER)


def caller_of(token: AccessToken) -> Caller:
    """The caller of a token. One bound to queues alone reaches no service, and the reverse.

    Operators act on all queues and services. So no bound token is an operator's, also not an
    `admin` that was bound before such tokens were refused.
    """
    queues, services, scopes = token.queues, token.services, token.scopes
    is_bound = queues is not None or services is not None
    if Scope.ADMIN in scopes and (is_bound or token.worker_id is not None):
        others = [scope for scope in scopes if scope is not Scope.ADMIN]
        scopes = tuple(dict.fromkeys((*others, *BOUND_ADMIN)))
    return Caller(
        token_id=token.id,
        name=token.name,
        scopes=scopes,
        queues=() if is_bound and queues is None else queues,
        services=() if is_bound and services is None else services,
        worker_id=token.worker_id,
        expires_at_ms=token.expires_at_ms,
    )


def check_bindable(token: AccessToken) -> None:
    """Refuse an `admin` that is bound: it could not do what its scope allows."""
    if (
        Scope.ADMIN in token.scopes
        and (token.queues, token.services, token.worker_id) != (None,) * 3
    ):
        raise Invalid(
            "a token of the scope admin cannot be bound to queues, services or a worker id; "
            "give it the scopes submit and worker instead",
            field="scopes",
        )


def check_grant(caller: Caller, token: AccessToken) -> None:
    """Refuse to make a token that allows more, or lives longer, than the caller's own."""
    made = caller_of(token)
    if not _actions(made) <= _actions(caller):
        raise Forbidden(
            f"token {caller.name!r} cannot give scopes that it does not have", field="scopes"
        )
    for field, own, given in (
        ("queues", caller.queues, made.queues),
        ("services", caller.services, made.services),
        ("worker_id", _one(caller.worker_id), _one(made.worker_id)),
    ):
        if own is not None and (given is None or not set(own).issuperset(given)):
            raise Forbidden(
                f"token {caller.name!r} cannot make a token that is bound less than itself",
                field=field,
            )
    if caller.expires_at_ms is not None and (
        made.expires_at_ms is None or made.expires_at_ms > caller.expires_at_ms
    ):
        raise Forbidden(
            f"token {caller.name!r} expires before that; give an expires_in_ms that ends sooner",
            field="expires_in_ms",
            expires_at_ms=caller.expires_at_ms,
        )


def _actions(caller: Caller) -> frozenset[Action]:
    return frozenset().union(*(ALLOWED[scope] for scope in caller.scopes))


def _one(worker_id: str | None) -> tuple[str, ...] | None:
    return None if worker_id is None else (worker_id,)


def is_expired(token: AccessToken, *, now_ms: int) -> bool:
    return token.expires_at_ms is not None and now_ms >= token.expires_at_ms


def is_allowed(caller: Caller, action: Action) -> bool:
    for scope in caller.scopes:  # noqa: SIM110 - asked for every request, and twice as fast
        if action in ALLOWED[scope]:
            return True
    return False


def check(caller: Caller, action: Action) -> None:
    if is_allowed(caller, action):
        return
    raise Forbidden(f"token {caller.name!r} may not {action.value}", action=action.value)


def check_worker(caller: Caller, worker_id: str) -> None:
    """A token bound to one worker id acts for no other."""
    if caller.worker_id is not None and caller.worker_id != worker_id:
        raise Forbidden(
            f"token {caller.name!r} is bound to worker {caller.worker_id!r}", worker_id=worker_id
        )


def check_queue(caller: Caller, queue: str, *, of: str | None = None) -> None:
    """A token bound to queues acts on no other.

    `of` is what the caller asked for, when that was not the queue. The error then does not name the
    queue, which is another tenant's.
    """
    if caller.queues is None or queue in caller.queues:
        return
    if of is not None:
        raise Forbidden(f"token {caller.name!r} is not for the queue of {of}")
    raise Forbidden(f"token {caller.name!r} is not for queue {queue!r}", queue=queue)


def check_service(caller: Caller, service: str) -> None:
    """A token bound to services acts on no other."""
    if caller.services is not None and service not in caller.services:
        raise Forbidden(f"token {caller.name!r} is not for service {service!r}", service=service)


def owner_of(caller: Caller | None) -> str:
    """The owner of what this caller registers: its binding; None is the coordinator itself."""
    return "" if caller is None else caller.binding


def is_owner(caller: Caller | None, owner: str | None) -> bool:
    """Whether a caller may act for what this owner registered.

    The owner is a binding, so a rotated token keeps what its predecessor registered. An operator
    may act for everything. An owner of None is not known: the row is older than owners, and its
    queues decide instead.
    """
    return caller is None or caller.binding == owner or caller.is_operator


def may_see_worker(caller: Caller, queues: tuple[str, ...] | None) -> bool:
    """Whether a caller is shown a worker that serves these queues: it serves one of the caller's.

    A worker of None serves all queues.
    """
    if caller.queues is None or queues is None:
        return True
    return not set(caller.queues).isdisjoint(queues)


def check_unbound(caller: Caller, what: str = "runs") -> None:
    """Refuse a token that is bound to queues: `what` is shared by all of them."""
    if caller.queues is not None:
        raise Forbidden(f"token {caller.name!r} is bound to queues; {what} are shared by all")
