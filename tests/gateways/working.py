"""Workflows driven over HTTP: a plain worker that does what it is told, task by task."""

from collections.abc import Callable, Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]  # has none

from tests.gateways.serving import Api, Json, Worker, held

HOUR_MS = 3_600_000
HOLD = object()  # a handler's answer: keep the lease, and say nothing yet

Handlers = Mapping[str, Callable[[Json], Any]]


class Broken(Exception):  # noqa: N818 - read where it is raised
    """What a handler raises to fail for good."""


class Bench:
    """A coordinator and one worker that is never in a hurry."""

    def __init__(self, api: Api, worker: Worker) -> None:
        self.api = api
        self.worker = worker
        self.kept: list[Json] = []  # leases held back

    @classmethod
    async def at(cls, api: Api) -> "Bench":
        return cls(api, await api.register(heartbeat_interval_ms=HOUR_MS))

    async def put(self, text: str) -> Json:
        name = yaml.safe_load(text)["name"]
        answer = await self.api.client.put(f"/api/workflows/{name}", content=text)
        assert answer.status_code in {200, 201}, answer.text
        return answer.json()

    async def start(self, workflow: str, run_input: Json = None, **more: Any) -> str:
        body = {"workflow": workflow, "input": run_input or {}, **more}
        answer = await self.api.post("/api/runs", body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def drive(self, handlers: Handlers) -> None:
        """Lease and report until nothing is left to lease."""
        while leases := await self.worker.lease():
            results = []
            for lease in leases:
                result = _outcome(handlers[lease["name"]], lease)
                if result is None:
                    self.kept.append(lease)
                else:
                    results.append(result)
            await self.worker.report(*results)

    async def run(self, run_id: str) -> Json:
        answer = await self.api.get(f"/api/runs/{run_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def carry_out(self, text: str, run_input: Json, handlers: Handlers) -> Json:
        """Put, start, drive; the run as it stands then."""
        name = (await self.put(text))["name"]
        run_id = await self.start(name, run_input)
        await self.drive(handlers)
        return await self.run(run_id)

    async def steer(self, run_id: str, verb: str, body: Json = None) -> Json:
        answer = await self.api.post(f"/api/runs/{run_id}/{verb}", body)
        assert answer.status_code in {200, 201}, answer.text
        return answer.json()

    async def items(self, path: str) -> list[Json]:
        answer = await self.api.get(path)
        assert answer.status_code == 200, answer.text
        found: list[Json] = answer.json()["items"]
        return found

    async def tokens(self, run_id: str) -> list[Json]:
        return await self.items(f"/api/runs/{run_id}/tokens?limit=1000")


def _outcome(handler: Callable[[Json], Any], lease: Json) -> Json | None:
    try:
        result = handler(lease["payload"])
    except Broken as error:
        fault = {"type": "Broken", "message": str(error), "retryable": False}
        return {**held(lease), "ok": False, "error": fault}
    return None if result is HOLD else {**held(lease), "ok": True, "result": result}
