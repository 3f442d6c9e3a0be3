"""The exceptions that handlers written for Celery raise."""


class MaxRetriesExceededError(Exception):
    """A task asked for one retry more than it may have."""


class Ignore(Exception):  # noqa: N818 - Celery's name
    """The handler wants no result: the task fails for good, without a further attempt."""


class Reject(Exception):  # noqa: N818 - Celery's name
    """The handler refuses the task: it fails for good, or with `requeue` is tried again."""

    def __init__(self, reason: str | None = None, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - Celery's signature
        super().__init__(reason or "rejected by its handler")
        self.requeue = requeue
