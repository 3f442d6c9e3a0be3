"""Results of steps that are too large for the log of their run: they are artifacts of the run."""

from collections.abc import Awaitable, Callable
from urllib.parse import quote

import msgspec
from msgspec import Raw

from rota.messages import LeaseView
from rota.sdk.client import run_calls
from rota.sdk.client.client import Client
from rota.sdk.encoding import encode
from rota.sdk.functions.execution.log import LogEntry

ARTIFACT = "$artifact"  # the field of a result that names its artifact
_ARTIFACT_START = b'{"$artifact":'
JSON = "application/json"


async def whole_end(end: LogEntry, load: Callable[[str], Awaitable[bytes]] | None) -> LogEntry:
    """The end of an operation with its whole result, also if that is an artifact."""
    result = end.result
    if load is None or not isinstance(result, Raw) or not bytes(result).startswith(_ARTIFACT_START):
        return end
    content = await load(msgspec.json.decode(result)[ARTIFACT])
    return msgspec.structs.replace(end, result=Raw(content))


class ResultArtifacts:
    """Stores and loads large results for the task that runs a function now."""

    def __init__(self, client: Client, lease: LeaseView, *, run_id: str, restarts: int) -> None:
        self._client = client
        self._lease = lease
        self._run_id = run_id
        self._restarts = restarts

    async def store(self, path: str, content: bytes) -> Raw:
        """Store the result of a step; returns what its log has instead."""
        name = f"result-{self._restarts}-{quote(path, safe='')}"
        call = run_calls.put_artifact(
            self._run_id,
            name,
            content,
            media_type=JSON,
            task_id=self._lease.task_id,
            fence=self._lease.fence,
        )
        await self._client.arun(call)
        return Raw(encode({ARTIFACT: name}))

    async def load(self, name: str) -> bytes:
        return await self._client.arun(run_calls.get_artifact(self._run_id, name))
