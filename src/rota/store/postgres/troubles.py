"""Whose move is it when PostgreSQL says no?"""

from rota.errors import Unavailable
from rota.store.postgres.link import LinkLost, Refused

# Classes of SQLSTATE. What the world does to a database, and what is over when tried again:
WORLD = {
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


def is_worlds(refused: Refused) -> bool:
    """Is this the world's trouble? Anything else is a mistake of ours."""
    return (refused.error.sqlstate or "58")[:2] in WORLD


def judged(trouble: LinkLost | Refused) -> Exception:
    """What becomes of a transaction that broke before its commit."""
    if isinstance(trouble, LinkLost) or is_worlds(trouble):
        return unavailable(str(trouble))
    if (trouble.error.sqlstate or "").startswith("23"):
        # The rows that were asked for contradict each other: no trouble of the disk's.
        return AssertionError(f"a constraint of the store was broken: {trouble}")
    return AssertionError(f"the store does not understand us: {trouble}")
