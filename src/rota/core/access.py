"""Who may do what? Tokens, their scopes, and what each scope opens.

Deny by default: an action that no scope of the caller lists is refused.
"""

from enum import StrEnum

from msgspec import Struct

from rota.errors import Forbidden


class Scope(StrEnum):
    ADMIN = "admin"  # everything
    SUBMIT = "submit"  # submit, cancel and read tasks; start, steer and read runs
    READ = "read"  # look, change nothing
    WORKER = "worker"  # register, lease, report; bound to queues, services and an id if it says so


class Action(StrEnum):
    READ = "read"  # any look at tasks, workers, queues, workflows, runs, services, metrics
    SUBMIT = "submit"  # submit, cancel or retry tasks; start, steer or signal runs
    WORK = "work"  # register, beat, lease, report, attach artifacts, keep checkpoints
    KEEP = "keep"  # put and delete values; acquire, renew and release locks
    RECALL = "recall"  # look at values and locks
    SCALE = "scale"  # see how much work waits, and how many workers it wants
    OPERATE = "operate"  # pause queues, drain workers, put workflows and services, manage tokens


ALLOWED: dict[Scope, frozenset[Action]] = {
    Scope.ADMIN: frozenset(Action),
    Scope.SUBMIT: frozenset({Action.SUBMIT, Action.READ, Action.KEEP, Action.RECALL, Action.SCALE}),
    Scope.READ: frozenset({Action.READ, Action.RECALL, Action.SCALE}),
    Scope.WORKER: frozenset({Action.WORK, Action.KEEP, Action.RECALL, Action.SCALE}),
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
    """Whoever asks, as far as the gate knows."""

    name: str
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...] | None = None  # None: any
    services: tuple[str, ...] | None = None  # None: any
    worker_id: str | None = None  # None: any


LOCAL = Caller(name="local", scopes=(Scope.ADMIN,))


def caller_of(token: AccessToken) -> Caller:
    """Who comes with a token; one bound to queues alone is for no service, and the reverse."""
    queues, services = token.queues, token.services
    is_bound = queues is not None or services is not None
    return Caller(
        name=token.name,
        scopes=token.scopes,
        queues=() if is_bound and queues is None else queues,
        services=() if is_bound and services is None else services,
        worker_id=token.worker_id,
    )


def is_expired(token: AccessToken, *, now_ms: int) -> bool:
    return token.expires_at_ms is not None and now_ms >= token.expires_at_ms


def check(caller: Caller, action: Action) -> None:
    for scope in caller.scopes:
        if action in ALLOWED[scope]:
            return
    raise Forbidden(f"token {caller.name!r} may not {action.value}", action=action.value)


def check_worker(caller: Caller, worker_id: str) -> None:
    """A token bound to one worker id acts for no other."""
    if caller.worker_id is not None and caller.worker_id != worker_id:
        raise Forbidden(
            f"token {caller.name!r} is bound to worker {caller.worker_id!r}", worker_id=worker_id
        )


def check_queue(caller: Caller, queue: str) -> None:
    """A token bound to queues acts on no other."""
    if caller.queues is not None and queue not in caller.queues:
        raise Forbidden(f"token {caller.name!r} is not for queue {queue!r}", queue=queue)


def check_service(caller: Caller, service: str) -> None:
    """A token bound to services acts on no other."""
    if caller.services is not None and service not in caller.services:
        raise Forbidden(f"token {caller.name!r} is not for service {service!r}", service=service)


def check_unbound(caller: Caller, what: str = "runs") -> None:
    """What is shared by all queues: a token bound to some has no say in it, and no look."""
    if caller.queues is not None:
        raise Forbidden(f"token {caller.name!r} is bound to queues; {what} are shared by all")
