import json

import pytest

from tests.gateways.serving import Api, Json

ONE = """
name: one
initial_node: a
nodes:
  a: {task: work, output: {output.r: result}}
"""
BROKEN = """name: broken
initial_node: a
nodes:
  a: {task: work, colour: red}
transitions:
  - {from: a, to: nowhere}
  - {from: a, to: a, condition: "input.x +"}
"""


async def put(api: Api, name: str, text: str, **options: Json) -> Json:
    return await api.client.put(f"/api/workflows/{name}", content=text, **options)


async def test_a_definition_is_kept_once_and_known_by_its_content(api: Api) -> None:
    first = await put(api, "one", ONE)
    again = await put(api, "one", ONE)
    changed = await put(api, "one", ONE.replace("task: work", "task: other"))

    assert (first.status_code, first.json()["version"]) == (201, 1)
    assert first.json().keys() >= {"name", "version", "hash"}
    assert (again.status_code, again.json()) == (200, first.json())
    assert (changed.status_code, changed.json()["version"]) == (201, 2)
    assert changed.json()["hash"] != first.json()["hash"]


@pytest.mark.parametrize("content_type", ["application/json", "application/yaml", "text/plain"])
async def test_yaml_and_json_of_the_same_content_are_one_version(
    api: Api, content_type: str
) -> None:
    nodes = {"a": {"task": "work", "output": {"output.r": "result"}}}
    text = json.dumps({"name": "one", "initial_node": "a", "nodes": nodes})
    headers = {"content-type": content_type}

    first = await put(api, "one", ONE, headers=headers)
    second = await put(api, "one", text, headers=headers)

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()


@pytest.mark.parametrize(
    "text",
    [
        "initial_node: a\nnodes: {a: {task: work}}",
        '{"initial_node": "a", "nodes": {"a": {"task": "work"}}}',
    ],
)
async def test_a_definition_may_leave_its_name_to_the_path(api: Api, text: str) -> None:
    answer = await put(api, "given%20name", text)
    shown = await api.get("/api/workflows/given%20name")

    assert (answer.status_code, answer.json()["name"]) == (201, "given name")
    assert shown.json()["definition"]["name"] == "given name"


async def test_another_name_than_the_paths_is_refused(api: Api) -> None:
    answer = await put(api, "two", ONE)

    assert (answer.status_code, answer.json()["field"]) == (400, "name")


async def test_a_broken_definition_is_refused_with_all_its_problems(api: Api) -> None:
    answer = await put(api, "broken", BROKEN)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "invalid_workflow"
    lines = {problem["path"]: problem["line"] for problem in answer.json()["problems"]}
    assert lines["nodes.a.colour"] == 4
    assert lines["transitions[0].to"] == 6
    assert lines["transitions[1].condition"] == 7
    assert (await api.get("/api/workflows/broken")).status_code == 404


async def test_a_definition_with_warnings_is_valid_and_stored(api: Api) -> None:
    text = ONE.replace("initial_node:", "output: {rows: state.rowz}\ninitial_node:", 1)

    checked = await api.client.post("/api/workflows/validate", content=text)
    stored = await put(api, "one", text)

    assert (checked.json()["ok"], checked.json()["problems"]) == (True, [])
    (warning,) = checked.json()["warnings"]
    assert (warning["code"], warning["path"]) == ("unwritten_state", "output.rows")
    assert warning["line"] is not None
    assert stored.status_code == 201


async def test_checking_keeps_nothing_and_tells_the_same(api: Api) -> None:
    bad = await api.client.post("/api/workflows/validate", content=BROKEN)
    good = await api.client.post("/api/workflows/validate", content=ONE)
    refused = await put(api, "broken", BROKEN)

    assert (bad.status_code, bad.json()["ok"]) == (200, False)
    assert bad.json()["problems"] == refused.json()["problems"]
    assert bad.json()["problems"][0].keys() == {
        "path",
        "code",
        "message",
        "line",
        "column",
    }
    assert good.json() == {"ok": True, "problems": [], "warnings": []}
    assert (await api.get("/api/workflows")).json()["items"] == []


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", "a: [", '{"name": "\\ud800"}', "&a [*a]", "{", "\0"]
)
async def test_what_is_no_definition_at_all_is_a_problem_too(api: Api, text: str) -> None:
    checked = await api.client.post("/api/workflows/validate", content=text)
    refused = await put(api, "x", text)

    assert (checked.status_code, checked.json()["ok"]) == (200, False)
    assert checked.json()["problems"]
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_workflow")


async def test_a_body_that_is_no_text_is_malformed(api: Api) -> None:
    answer = await api.client.put("/api/workflows/x", content=b"\xff\xfe")

    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


async def test_workflows_are_listed_by_name_in_pages(api: Api) -> None:
    for name in ("c", "a", "b"):
        await put(api, name, ONE.replace("name: one", f"name: {name}"))

    first = (await api.get("/api/workflows?limit=2")).json()
    second = (await api.get(f"/api/workflows?limit=2&cursor={first['next_cursor']}")).json()

    assert [item["name"] for item in first["items"]] == ["a", "b"]
    assert [item["name"] for item in second["items"]] == ["c"]
    assert second["next_cursor"] is None


async def test_a_workflow_shows_its_newest_definition_and_all_versions(api: Api) -> None:
    await put(api, "one", ONE)
    await put(api, "one", ONE.replace("task: work", "task: other"))

    shown = (await api.get("/api/workflows/one")).json()
    old = (await api.get("/api/workflows/one/versions/1")).json()

    assert shown["version"] == 2
    assert shown["definition"]["nodes"]["a"]["task"] == "other"
    assert [one["version"] for one in shown["versions"]] == [2, 1]
    assert (old["version"], old["definition"]["nodes"]["a"]["task"]) == (1, "work")


@pytest.mark.parametrize(
    "path",
    ["two", "two/versions/1", "one/versions/2", "one/versions/0", "one/versions/x"]
    + [f"one/versions/{'9' * digits}" for digits in (10, 30)],
)
async def test_what_is_not_there_is_not_found(api: Api, path: str) -> None:
    await put(api, "one", ONE)

    answer = await api.get(f"/api/workflows/{path}")

    assert (answer.status_code, answer.json()["code"]) == (404, "workflow_not_found")
    assert "not found" in answer.json()["detail"]
