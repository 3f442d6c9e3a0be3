"""What is kept of the charts? The slots of a minute, for each queue that had any."""

from msgspec import Struct


class KeptMinute(Struct, frozen=True, kw_only=True):
    """The slots of one queue in one minute; the queue '' is all of them together."""

    started_at_ms: int
    queue: str
    slots: bytes  # as JSON, in a form that the charts alone know


class KeepMinutes(Struct, frozen=True, kw_only=True, tag=True):
    """Minutes are to be kept, and older ones to be forgotten."""

    minutes: tuple[KeptMinute, ...]
    forget_before_ms: int
