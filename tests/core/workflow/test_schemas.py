"""JSON Schemas of definitions: nothing is fetched, and no schema makes endless work."""

from collections.abc import Iterator
from typing import Any

import pytest

from rota.core import limits
from rota.core.workflow.definition import schema_references, schemas
from rota.core.workflow.definition.schemas import schema_problem, value_problems
from tests.listening import Listener, listening, remote_schemas

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as server:
        yield server


def test_a_remote_reference_is_refused_and_nothing_is_fetched(listener: Listener) -> None:
    for schema in remote_schemas(listener.address):
        found = schema_problem(schema)

        assert found is not None, schema
        assert found.code == "remote_reference", schema
    assert listener.connections == 0


def test_a_schema_that_was_kept_earlier_is_refused_and_fetches_nothing_at_run_time(
    listener: Listener,
) -> None:
    for schema in remote_schemas(listener.address):
        (found,) = value_problems(schema, {"a": 1})

        assert found.startswith("schema: remote_reference: "), schema
    assert listener.connections == 0


def test_the_validator_itself_cannot_retrieve_anything(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_references, "leaving", lambda _: None)
    schemas._validator.cache_clear()

    for schema in remote_schemas(listener.address):
        schema_problem(schema)
        value_problems(schema, {"a": 1})

    schemas._validator.cache_clear()
    assert listener.connections == 0


@pytest.mark.parametrize("address", ["file:///etc/hostname", "ftp://host/x", "other.json", "//h/x"])
def test_references_to_files_and_other_documents_are_refused(address: str) -> None:
    found = schema_problem({"properties": {"a": {"$ref": address}}})

    assert found is not None
    assert found.code == "remote_reference"
    assert address in found.message
    assert found.message.startswith("properties.a.$ref: ")


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": DRAFT_2020, "type": "string"},
        {"$schema": DRAFT_2019, "type": "string"},
        {"$schema": DRAFT_7, "type": "string"},
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "string"},
        {"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"},
        {"$defs": {"a b": {"type": "string"}}, "$ref": "#/$defs/a%20b"},
        {"components": {"a": {"type": "string"}}, "$ref": "#/components/a"},
        {"$defs": {"a": {"$anchor": "name", "type": "string"}}, "$ref": "#name"},
        {"$id": "http://x/y", "$defs": {"a": {"$id": "z", "type": "string"}}, "$ref": "z"},
        {"$id": "http://x/y", "$defs": {"a": {"$id": "z", "type": "string"}}, "$ref": "http://x/z"},
        {
            "$schema": DRAFT_7,
            "definitions": {"a": {"$id": "#a", "type": "string"}},
            "allOf": [{"$ref": "#a"}],
        },
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "http://x/y",
            "type": "string",
        },
    ],
)
def test_references_inside_the_document_and_known_meta_schemas_work(schema: Any) -> None:
    assert schema_problem(schema) is None
    assert value_problems(schema, "text") == []
    assert value_problems(schema, 1) != []


def test_a_schema_may_be_the_one_of_schemas() -> None:
    schema = {"$ref": DRAFT_2020}

    assert schema_problem(schema) is None
    assert value_problems(schema, {"type": "string"}) == []
    assert value_problems(schema, {"type": "nothing"}) != []


def test_data_that_looks_like_a_reference_is_data() -> None:
    schema = {"const": {"$ref": "http://host/x"}, "default": {"$schema": "http://host/x"}}

    assert schema_problem(schema) is None
    assert value_problems(schema, {"$ref": "http://host/x"}) == []


# --- patterns -----------------------------------------------------------------------------------


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "^(a|a)*$", "^(.*a){12}$"])
def test_a_pattern_that_backtracks_elsewhere_is_matched_in_linear_time(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}

    assert schema_problem(schema) is None
    assert value_problems(schema, "a" * 100_000 + "!") != []


@pytest.mark.parametrize("pattern", [r"(a*)*\1b", "^(?=(a+)+$)", "(?<!a)b", "a{1000}{1000}"])
def test_a_pattern_that_needs_backtracking_or_much_memory_is_refused(pattern: str) -> None:
    for schema in ({"pattern": pattern}, {"patternProperties": {pattern: True}}):
        found = schema_problem(schema)

        assert found is not None
        assert found.code == "bad_schema"
        assert "no look-around and no back-references" in found.message
        assert value_problems(schema, {"a": "b"}) != []


# --- references that multiply -------------------------------------------------------------------


def doubled(count: int) -> dict[str, Any]:
    """A chain of definitions, each of which names the one before it twice."""
    links: dict[str, Any] = {"a0": {"type": "integer"}}
    for number in range(1, count):
        links[f"a{number}"] = {"allOf": [{"$ref": f"#/$defs/a{number - 1}"}] * 2}
    return {"$defs": links, "$ref": f"#/$defs/a{count - 1}"}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "schema",
    [
        doubled(40),
        {"items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}},
        {"items": {"anyOf": [{"$ref": "#"}, {"not": {"$ref": "#"}}]}},
        {"properties": {"a": {"$ref": "#"}}, "patternProperties": {"a": {"$ref": "#"}}},
        {
            "$schema": DRAFT_2019,
            "$recursiveAnchor": True,
            "items": {"allOf": [{"$recursiveRef": "#"}] * 2},
        },
        {"$dynamicAnchor": "n", "items": {"allOf": [{"$dynamicRef": "#n"}] * 2}},
        {
            "$defs": {"a b": {"items": {"allOf": [{"$ref": "#/%24defs/a%20b"}] * 2}}},
            "$ref": "#/$defs/a%20b",
        },
    ],
)
def test_references_that_multiply_are_refused_when_checked_and_when_used(schema: Any) -> None:
    nested: Any = 1
    for _ in range(60):
        nested = [nested]

    found = schema_problem(schema)

    assert found is not None
    assert found.code == "expensive_schema"
    assert value_problems(schema, nested)[0].startswith("schema: expensive_schema: ")


@pytest.mark.parametrize(
    "schema",
    [
        doubled(10),
        {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
        {"properties": {"left": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}},
        {
            "anyOf": [
                {"type": "string"},
                {"items": {"$ref": "#"}},
                {"additionalProperties": {"$ref": "#"}},
            ]
        },
        {"oneOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"b": {"$ref": "#"}}}]},
        {"$ref": "#"},
    ],
)
def test_recursive_schemas_that_do_not_multiply_are_kept(schema: Any) -> None:
    assert schema_problem(schema) is None


def test_a_schema_of_very_many_parts_is_refused() -> None:
    parts: dict[str, Any] = {f"p{number}": {} for number in range(limits.MAX_SCHEMA_PARTS)}

    found = schema_problem({"properties": parts})

    assert found is not None
    assert found.code == "expensive_schema"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"anyOf": [{"const": number} for number in range(4_000)]}}, [-1] * 10_000),
        ({"pattern": "[ab]*a[ab]{200}c"}, "ab" * 1_000_000),
        ({"items": {"allOf": [{"pattern": "[ab]*a[ab]{200}c"}] * 50}}, ["ab" * 100] * 10_000),
    ],
)
def test_a_value_that_would_be_checked_too_long_is_refused(schema: Any, value: Any) -> None:
    assert schema_problem(schema) is None
    assert value_problems(schema, value)[0].startswith("schema: expensive_schema: ")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"type": "integer"}}, list(range(500_000))),
        ({"items": {"enum": [f"x{number}" for number in range(10_000)]}}, ["x7"] * 100_000),
        ({"items": {"pattern": "^[a-z0-9-]{1,63}$"}}, ["some-name"] * 20_000),
        (
            {
                "properties": {
                    "rows": {
                        "items": {
                            "properties": {
                                f"p{number}": {"type": "integer"} for number in range(50)
                            }
                        }
                    }
                }
            },
            {"rows": [{f"p{number}": 1 for number in range(50)}] * 4_000},
        ),
    ],
)
def test_a_large_value_is_held_against_a_usual_schema(schema: Any, value: Any) -> None:
    assert value_problems(schema, value) == []
