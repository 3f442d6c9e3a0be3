"""How does what is said twice happen once? By a key that the second saying has as well."""

import secrets
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from rota.core.tasks import NewTask
from rota.sdk.requests import Call, Decoder, decoder_of, post

KEY_BYTES = 16
PREFIX = "once-"  # so that one can tell ours from those that users give


def new_key() -> str:
    return f"{PREFIX}{secrets.token_hex(KEY_BYTES)}"


def submission_with_keys(tasks: Sequence[NewTask], answer: Any) -> Call[Any]:
    """A submission whose tasks have keys, be it ours: it may be sent again."""
    keyed = [one if one.key is not None else replace(one, key=new_key()) for one in tasks]
    ours = [one.key is None for one in tasks]
    call = post("/api/tasks", answer, keyed, is_repeatable=True)
    return replace(call, decoder=_Undoubled(decoder_of(answer), ours))


class _Undoubled:
    """A task that is found by a key of ours is no duplicate to whoever submitted it."""

    def __init__(self, inner: Decoder[Any], ours: Sequence[bool]) -> None:
        self._inner = inner
        self._ours = ours

    def decode(self, content: bytes, /) -> Any:
        found = self._inner.decode(content)
        return [
            replace(one, duplicate=False) if is_ours and one.duplicate else one
            for one, is_ours in zip(found, self._ours, strict=True)
        ]
