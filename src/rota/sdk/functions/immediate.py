"""Operations of a function that are done at once: recorded in its log, and awaited by nothing."""

import hashlib
import sys
import uuid
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw

from rota.core.workflow.functions.model import Operation, OperationKind
from rota.errors import Invalid
from rota.sdk.encoding import encode
from rota.sdk.functions.execution.runtime import FunctionRuntime
from rota.sdk.functions.execution.scopes import checked_name
from rota.sdk.functions.execution.steps import LARGE_RESULT_BYTES

MS = 1_000


class ImmediateOperations:
    """What a function publishes, marks and derives; the same whatever options are in use."""

    def __init__(self, runtime: FunctionRuntime) -> None:
        self._runtime = runtime
        self._markers: dict[str, bool] = {}

    def publish(self, key: str, value: Any) -> None:
        self._record("publish", key, {"key": key, "value": value})

    def write(self, stream: str, value: Any) -> None:
        self._record("stream", stream, {"stream": stream, "value": value})

    def _record(self, kind: OperationKind, name: str, result: dict[str, Any]) -> None:
        line = calling_line()
        path = self._runtime.enter(checked_name(name), None, line)
        if self._runtime.end_now(path, kind, line) is None:
            done = _done(path, kind, result, self._runtime.clock(), line)
            self._runtime.record_now(done, line)

    def changed(self, name: str) -> bool:
        """Whether the code behind this marker is new to the run."""
        known = self._markers.get(name)
        if known is not None:
            return known
        line = calling_line()
        self._runtime.check_open()
        path = f"changed[{checked_name(name)}]"
        if self._runtime.end_now(path, "marker", line) is not None:
            is_new = True
        else:
            is_new = not self._runtime.log.is_replaying
            if is_new:
                done = _done(path, "marker", True, self._runtime.clock(), line)  # noqa: FBT003 - its result
                self._runtime.record(done)
        self._markers[name] = is_new
        return is_new

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._runtime.ends.now_ms / MS, UTC)

    def random(self) -> float:
        return int.from_bytes(self._derived("random")[:7], "big") / 2**56

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._derived("uuid")[:16], version=4)

    def _derived(self, name: str) -> bytes:
        """Bytes that follow from the run and the place in the function alone."""
        path = self._runtime.enter(name, None, calling_line())
        seed = f"{self._runtime.run_id}/{self._runtime.restarts}/{path}"
        return hashlib.blake2b(seed.encode(), digest_size=16).digest()


class ReceivedMessage:
    """A signal that the function received; `reply` answers its sender."""

    def __init__(
        self, runtime: FunctionRuntime, name: str, number: int, payload: Any, line: int
    ) -> None:
        self.name = name
        self.number = number
        self.payload = payload
        self._runtime = runtime
        self._line = line

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.name} {self.number}>"

    def reply(self, value: Any = None) -> None:
        """Answer the sender, once."""
        runtime = self._runtime
        runtime.check_open()
        path = f"reply[{self.number}]"
        if runtime.end_now(path, "reply", self._line) is None:
            result = {"number": self.number, "value": value}
            done = _done(path, "reply", result, runtime.clock(), self._line)
            runtime.record_now(done, self._line)


def _done(path: str, kind: OperationKind, result: Any, now_ms: int, line: int) -> Operation:
    try:
        content = Raw(encode(result))
    except Exception as error:  # noqa: BLE001 - users' types
        raise Invalid(f"{path}: the value cannot be written as JSON: {error}") from None
    if len(content) > LARGE_RESULT_BYTES:
        raise Invalid(f"{path}: the value has more than {LARGE_RESULT_BYTES} bytes")
    return Operation(
        path=path, kind=kind, state="done", result=content, ended_at_ms=now_ms, line=line or None
    )


def calling_line() -> int:
    """The line of the code outside of this package that calls."""
    frame = sys._getframe(1)  # noqa: SLF001 - documented; `inspect.stack` reads files
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame.f_lineno
