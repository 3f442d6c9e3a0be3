"""The errors of PostgreSQL as errors of Rota.

Those of the environment may pass, and any other error is a defect of Rota.
"""

from rota.errors import NotLeader, OutcomeUnknown, StoreFull, Unavailable
from rota.store.postgres.link import ConnectionLost, StatementRefused

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
EPOCH_IS_OVER = "RT001"  # raised by `check_epoch`
COUNT_IS_WRONG = "RT002"  # raised by `check_count`
DISK_IS_FULL = "53100"
NOTHING_CHANGED = "nothing was changed"


def unavailable(reason: str) -> Unavailable:
    return Unavailable(f"the store cannot be used now ({reason}); {NOTHING_CHANGED}")


def unknown(reason: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"the store was lost while it committed ({reason})")


def is_deposed(error: ConnectionLost | StatementRefused) -> bool:
    """Whether the fence has refused the epoch of a write."""
    return isinstance(error, StatementRefused) and error.error.sqlstate == EPOCH_IS_OVER


def is_environmental(refused: StatementRefused) -> bool:
    """Whether the error comes from the environment; any other error is a defect of Rota."""
    return (refused.error.sqlstate or "58")[:2] in ENVIRONMENTAL


def to_error(error: ConnectionLost | StatementRefused) -> Exception:
    """The error to raise for a transaction that failed before its commit."""
    if is_deposed(error):
        return NotLeader()
    if isinstance(error, StatementRefused) and error.error.sqlstate == DISK_IS_FULL:
        return StoreFull()
    if isinstance(error, ConnectionLost) or is_environmental(error):
        return unavailable(str(error))
    if (error.error.sqlstate or "").startswith("23"):
        # The rows contradict each other: a defect of Rota, not of the disk.
        return AssertionError(f"a constraint of the store was broken: {error}")
    if error.error.sqlstate == COUNT_IS_WRONG:
        return AssertionError(f"the store does not hold what it should: {error}")
    return AssertionError(f"the store does not understand us: {error}")
