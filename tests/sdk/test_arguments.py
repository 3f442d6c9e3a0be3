"""Arguments become a payload that any language could have written, and arguments again."""

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Raw

from rota.errors import Invalid
from rota.sdk.arguments import Arguments, InvalidArguments
from rota.sdk.outcomes import Discard, Snooze

if TYPE_CHECKING:
    from nowhere import Mystery  # type: ignore[import-not-found]  # seen by type checkers only


def payload(function: Any, *args: Any, **kwargs: Any) -> Any:
    return msgspec.json.decode(Arguments(function, task="task").encode(args, kwargs))


def read(function: Any, content: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return Arguments(function, task="task").decode(Raw(content))


def there_and_back(function: Any, *args: Any, **kwargs: Any) -> Any:
    arguments = Arguments(function, task="task")
    given_args, given_kwargs = arguments.decode(arguments.encode(args, kwargs))
    return function(*given_args, **given_kwargs)


def resize(path: str, width: int, *, quality: float = 0.9) -> tuple[str, int, float]:
    return path, width, quality


def test_a_payload_is_an_object_of_named_arguments() -> None:
    assert payload(resize, "a.png", width=200) == {"path": "a.png", "width": 200}
    assert payload(resize, "a.png", 200, quality=1) == {
        "path": "a.png",
        "width": 200,
        "quality": 1,
    }


def test_what_was_left_out_has_the_handler_s_default() -> None:
    assert there_and_back(resize, "a.png", 1) == ("a.png", 1, 0.9)


def test_null_and_an_empty_object_are_a_call_without_arguments() -> None:
    def nothing() -> None: ...

    def optional(width: int = 3) -> None: ...

    for content in (b"null", b"{}"):
        assert read(nothing, content) == ((), {})
        assert read(optional, content) == ((3,), {})


def test_every_kind_of_parameter_is_a_field_of_its_name() -> None:
    def all_kinds(a: int, /, b: int, *rest: int, c: int, **options: str) -> list[Any]:
        return [a, b, rest, c, options]

    assert payload(all_kinds, 1, 2, 3, 4, c=5, d="x") == {
        "a": 1,
        "b": 2,
        "rest": [3, 4],
        "c": 5,
        "options": {"d": "x"},
    }
    assert there_and_back(all_kinds, 1, 2, 3, 4, c=5, d="x") == [1, 2, (3, 4), 5, {"d": "x"}]
    assert there_and_back(all_kinds, 1, 2, c=5) == [1, 2, (), 5, {}]


class Colour(enum.Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Order:
    number: uuid.UUID
    total: Decimal
    lines: list[Point]


class Model:
    """One that validates and dumps itself, as those of pydantic do."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @classmethod
    def model_validate(cls, value: Any) -> "Model":
        return cls(value["name"])

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"name": self.name}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (datetime, datetime(2026, 5, 1, 12, tzinfo=UTC)),
        (date, date(2026, 5, 1)),
        (Colour, Colour.RED),
        (Point, Point(1, 2)),
        (Order, Order(uuid.uuid4(), Decimal("9.90"), [Point(1)])),
        (bytes, b"\x00\xff"),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (dict[int, float], {1: 2.5}),
        (Path, Path("a/b.png")),
        (Model, Model(name="ada")),
        (int | None, None),
        (Literal["a", "b"], "b"),
    ],
)
def test_rich_types_arrive_as_they_were_sent(kind: Any, value: Any) -> None:
    def handler(value: Any) -> Any:
        return value

    handler.__annotations__["value"] = kind

    assert there_and_back(handler, value) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_any_json_goes_through_unannotated_parameters(value: Any) -> None:
    def handler(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - the point
        return value

    assert there_and_back(handler, value) == value


def test_arguments_that_python_would_refuse_are_refused() -> None:
    with pytest.raises(TypeError, match="'task': missing a required argument: 'width'"):
        payload(resize, "a.png")
    with pytest.raises(TypeError, match="unexpected keyword argument 'height'"):
        payload(resize, "a.png", 1, height=2)


def test_an_argument_of_the_wrong_type_is_named() -> None:
    with pytest.raises(InvalidArguments, match="argument 'width': Expected `int`") as caught:
        payload(resize, "a.png", "wide")

    assert caught.value.facts == {"task": "task", "argument": "width"}
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, Invalid)


def test_an_argument_that_breaks_its_constraint_is_named() -> None:
    def handler(width: Annotated[int, Meta(ge=1)]) -> None: ...

    with pytest.raises(InvalidArguments, match=r"argument 'width'.*>= 1"):
        payload(handler, 0)


def test_an_argument_that_cannot_be_json_is_named() -> None:
    def handler(path: Any, opener: Any) -> None: ...

    with pytest.raises(InvalidArguments, match=r"argument 'opener'.*'object'"):
        payload(handler, "a", object())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"path": "a"}', "missing required field `width`"),
        (b'{"path": "a", "width": 1, "depth": 2}', "unknown field `depth`"),
        (b'{"path": 1, "width": 1}', "argument 'path'"),
        (b'["a", 1]', "Expected `object`, got `array`"),
        (b"null", "missing required field `path`"),
        (b'{"path": ', "truncated"),
    ],
)
def test_a_foreign_payload_that_does_not_fit_is_refused_with_the_reason(
    content: bytes, reason: str
) -> None:
    with pytest.raises(InvalidArguments, match=reason):
        read(resize, content)


def test_annotations_that_cannot_be_resolved_stay_unchecked_and_the_others_do_not() -> None:
    def handler(thing: "Mystery", width: "int") -> Any:
        return thing, width

    assert there_and_back(handler, {"a": 1}, 2) == ({"a": 1}, 2)
    with pytest.raises(InvalidArguments, match="'width'"):
        payload(handler, 1, "wide")


def test_annotations_may_name_what_is_defined_later() -> None:
    def handler(point: "Later") -> "Later":
        return point

    assert there_and_back(handler, Later(1)) == Later(1)


class Later(msgspec.Struct):
    x: int


def test_mutable_defaults_work_as_in_any_function() -> None:
    shared = ["a"]

    def handler(names: list[str] = shared) -> list[str]:
        return names

    assert there_and_back(handler) is shared


def test_answers_in_a_return_annotation_do_not_hide_the_result_s_type() -> None:
    def handler() -> Point | Snooze | Discard:
        return Point(1)

    decoder = Arguments(handler, task="task").result_decoder

    assert decoder.decode(b'{"x": 1}') == Point(1)
