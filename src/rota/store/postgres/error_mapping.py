"""Maps PostgreSQL's errors to ours."""

from rota.errors import Unavailable
from rota.store.postgres.connection import ConnectionLost, StatementRefused

# Classes of SQLSTATE that come from the environment and may pass: try again.
ENVIRONMENTAL = {
    "08": "its connection",
    "25": "it is read-only, or ended an idle transaction",
    "40": "another transaction",
    "53": "its resources",
    "55": "a lock that others hold",
    "57": "an operator, or a time limit",
    "58": "its system",
}
NOTHING_CHANGED = "nothing was changed"
UNKNOWN = (
    "it is not known whether the change was made; made again with the same key it happens once"
)


def unavailable(reason: str) -> Unavailable:
    return Unavailable(f"the store cannot be used now ({reason}); {NOTHING_CHANGED}")


def unknown(reason: str) -> Unavailable:
    return Unavailable(f"the store was lost while it committed ({reason}); {UNKNOWN}")


def is_environmental(refused: StatementRefused) -> bool:
    """Whether the error comes from the environment; any other error is a defect of Rota."""
    return (refused.error.sqlstate or "58")[:2] in ENVIRONMENTAL


def to_error(error: ConnectionLost | StatementRefused) -> Exception:
    """The error to raise for a transaction that failed before its commit."""
    if isinstance(error, ConnectionLost) or is_environmental(error):
        return unavailable(str(error))
    if (error.error.sqlstate or "").startswith("23"):
        # The rows contradict each other: a defect of Rota, not of the disk.
        return AssertionError(f"a constraint of the store was broken: {error}")
    return AssertionError(f"the store does not understand us: {error}")
