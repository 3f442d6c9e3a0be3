"""What can be asked of a coordinator about the whole? As `calls`, for all nouns at a glance."""

from rota.messages import BacklogPage, Overview
from rota.sdk.requests import Call, get


def get_overview() -> Call[Overview]:
    """Counts of everything: tasks and runs by state, workers by health, shards."""
    return get("/api/overview", Overview)


def get_backlog() -> Call[BacklogPage]:
    """What waits, and why; what is stuck comes first."""
    return get("/api/backlog", BacklogPage)
