"""Definitions as an attack, over real sockets."""

import asyncio
import json

import pytest

from rota.core import limits
from tests.gateways.serving import Api, Json
from tests.listening import listening, remote_schemas


def workflow(**fields: Json) -> str:
    return json.dumps(
        {"name": "x", "initial_node": "a", "nodes": {"a": {"task": "work"}}, **fields}
    )


async def check(api: Api, text: str) -> Json:
    answer = await api.client.post("/api/workflows/validate", content=text, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_no_schema_makes_the_coordinator_connect_to_anything(api: Api) -> None:
    with listening() as listener:
        for schema in remote_schemas(listener.address):
            places = [
                {"input": schema},
                {"state": schema},
                {"output_schema": schema},
                {"nodes": {"a": {"task": "work", "output_schema": schema}}},
            ]
            for fields in places:
                checked = await check(api, workflow(**fields))
                refused = await api.client.put("/api/workflows/x", content=workflow(**fields))

                assert [one["code"] for one in checked["problems"]] == ["remote_reference"]
                assert (refused.status_code, refused.json()["code"]) == (422, "invalid_workflow")

        assert listener.connections == 0


async def test_a_definition_over_the_limit_gets_413(api: Api) -> None:
    text = workflow(description="x" * limits.MAX_DEFINITION_BYTES)

    for answer in (
        await api.client.put("/api/workflows/x", content=text),
        await api.client.post("/api/workflows/validate", content=text),
    ):
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert answer.json()["limit"] == limits.MAX_DEFINITION_BYTES
        assert answer.json()["setting"] == "MAX_DEFINITION_BYTES"


async def test_more_definitions_than_may_wait_get_429_and_when_to_come_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_DEFINITIONS_WAITING", 0)

    answer = await api.client.put("/api/workflows/x", content=workflow())

    assert (answer.status_code, answer.json()["code"]) == (429, "too_many")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]", "unreadable"),
        ("[" * 100_000, "unreadable"),
        ("{a: " * 20_000, "unreadable"),
        ("- " * 100_000, "unreadable"),
        (workflow(nodes={f"n{number}": {} for number in range(2_000)}), "too_many_nodes"),
        (workflow(input={"pattern": r"(a*)*\1b"}), "bad_schema"),
        (
            workflow(
                input={
                    "$defs": {
                        "a0": {},
                        **{
                            f"a{number}": {"allOf": [{"$ref": f"#/$defs/a{number - 1}"}] * 2}
                            for number in range(1, 40)
                        },
                    },
                    "$ref": "#/$defs/a39",
                }
            ),
            "expensive_schema",
        ),
    ],
)
async def test_a_definition_that_is_a_bomb_is_refused_with_its_problem(
    api: Api, text: str, code: str
) -> None:
    checked = await check(api, text)

    assert checked["ok"] is False
    assert [one["code"] for one in checked["problems"]] == [code]


@pytest.mark.timeout(120)
async def test_everything_else_is_answered_while_large_definitions_are_checked(api: Api) -> None:
    nodes = {f"n{number}": {"input": {"a": f"input.x + {number}"}} for number in range(900)}
    text = workflow(initial_node="n0", nodes=nodes, description="x" * 500_000)
    checks = asyncio.gather(*(check(api, text) for _ in range(4)))
    loop = asyncio.get_running_loop()
    longest, answers = 0.0, 0

    while not checks.done():
        began = loop.time()
        answer = await api.get("/health")
        longest, answers = max(longest, loop.time() - began), answers + 1
        assert answer.status_code == 200

    assert all(checked["problems"] for checked in await checks)
    assert answers > 10
    assert longest < 5


async def test_a_run_whose_expression_is_too_expensive_fails_and_others_go_on(api: Api) -> None:
    nodes = {"a": {"task": "work", "input": {"n": "size(input.rows.map(r, r))"}}}
    await api.client.put("/api/workflows/x", content=workflow(nodes=nodes))
    worker = await api.register()

    rows = list(range(9_000))
    costly = await api.post("/api/runs", {"workflow": "x", "input": {"rows": rows}})
    usual = await api.post("/api/runs", {"workflow": "x", "input": {"rows": [1, 2]}})

    failed = (await api.get(f"/api/runs/{costly.json()['id']}")).json()
    assert failed["state"] == "failed"
    assert failed["error"]["type"] == "expression_budget"
    assert failed["error"]["place"] == "nodes.a.input.n"
    (lease,) = await worker.lease()
    await worker.finish(lease, 1)
    gone_on = (await api.get(f"/api/runs/{usual.json()['id']}")).json()
    assert (lease["payload"], gone_on["state"]) == ({"n": 2}, "completed")
