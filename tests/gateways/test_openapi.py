import json
import re
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from rota.gateways.http.endpoints import ENDPOINTS
from rota.gateways.http.openapi import document
from tests.gateways.serving import Api

ROWS = {
    ("POST", "/api/tasks"),
    ("GET", "/api/tasks"),
    ("GET", "/api/tasks/{}"),
    ("POST", "/api/tasks/{}/cancel"),
    ("POST", "/api/tasks/{}/retry"),
    ("POST", "/api/tasks/cancel"),
    ("POST", "/api/tasks/retry"),
    ("GET", "/api/queues"),
    ("POST", "/api/queues/{}/pause"),
    ("POST", "/api/queues/{}/resume"),
    ("POST", "/api/workers"),
    ("POST", "/api/workers/{}/heartbeat"),
    ("POST", "/api/workers/{}/lease"),
    ("POST", "/api/workers/{}/results"),
    ("POST", "/api/workers/{}/progress"),
    ("GET", "/api/workers"),
    ("GET", "/api/workers/{}"),
    ("DELETE", "/api/workers/{}"),
    ("POST", "/api/workers/{}/drain"),
    ("POST", "/api/workers/{}/resume"),
    ("POST", "/api/workers/{}/quarantine"),
    ("POST", "/api/jobs/{}/start"),
    ("POST", "/api/jobs/{}/complete"),
    ("POST", "/api/jobs/{}/fail"),
    ("GET", "/api/jobs/{}"),
    ("PUT", "/api/workflows/{}"),
    ("POST", "/api/workflows/validate"),
    ("GET", "/api/workflows"),
    ("GET", "/api/workflows/{}"),
    ("GET", "/api/workflows/{}/versions/{}"),
    ("POST", "/api/runs"),
    ("GET", "/api/runs"),
    ("GET", "/api/runs/{}"),
    ("GET", "/api/runs/{}/tokens"),
    ("GET", "/api/runs/{}/journal"),
    ("GET", "/api/runs/{}/artifacts"),
    ("GET", "/api/runs/{}/graph"),
    ("POST", "/api/runs/{}/cancel"),
    ("POST", "/api/runs/{}/pause"),
    ("POST", "/api/runs/{}/resume"),
    ("POST", "/api/runs/{}/retry"),
    ("POST", "/api/runs/{}/signal"),
    ("POST", "/api/runs/{}/fork"),
    ("PUT", "/api/runs/{}/artifacts/{}"),
    ("GET", "/api/runs/{}/artifacts/{}"),
    ("GET", "/api/services"),
    ("GET", "/api/services/{}"),
    ("PUT", "/api/services/{}"),
    ("POST", "/api/services/{}/members"),
    ("POST", "/api/services/{}/members/{}/heartbeat"),
    ("POST", "/api/services/{}/members/{}/drain"),
    ("DELETE", "/api/services/{}/members/{}"),
    ("PUT", "/api/services/{}/shards/{}/checkpoint"),
    ("GET", "/api/services/{}/shards/{}/checkpoint"),
    ("GET", "/health"),
    ("GET", "/health/live"),
    ("GET", "/health/ready"),
    ("GET", "/metrics"),
}


@pytest.fixture(scope="module")
def shown() -> Any:
    return json.loads(msgspec.json.encode(document(ENDPOINTS)))


def operations(shown: Any) -> list[Any]:
    return [operation for path in shown["paths"].values() for operation in path.values()]


def test_the_document_is_valid(shown: Any) -> None:
    validate(shown, cls=OpenAPIV31SpecValidator)


def test_every_row_of_the_contract_is_in_it(shown: Any) -> None:
    described = {
        (method.upper(), re.sub(r"\{\w+\}", "{}", path))
        for path, methods in shown["paths"].items()
        for method in methods
    }

    assert described >= ROWS


def test_every_operation_has_an_id_of_its_own_a_summary_and_its_errors(shown: Any) -> None:
    ids = [operation["operationId"] for operation in operations(shown)]

    assert len(ids) == len(set(ids))
    for operation in operations(shown):
        assert operation["summary"]
        assert {"400", "500"} <= operation["responses"].keys()
        if "requestBody" in operation:
            assert "413" in operation["responses"]
        if "security" in operation:
            assert {"401", "403", "429", "503"} <= operation["responses"].keys()


def test_requests_refuse_what_they_do_not_know(shown: Any) -> None:
    schemas = shown["components"]["schemas"]

    for name in (
        "NewTask",
        "WorkerRegistration",
        "LeaseRequest",
        "ResultItem",
        "NoFields",
        "RunRequest",
        "MemberRegistration",
        "MemberHeartbeat",
        "ServiceChange",
        "ShardClaim",
    ):
        assert schemas[name]["additionalProperties"] is False


def test_every_schema_is_used(shown: Any) -> None:
    text = json.dumps(shown)

    for name in shown["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text


async def test_the_document_is_served(api: Api, shown: Any) -> None:
    answer = await api.get("/openapi.json")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == shown
