from contextlib import suppress
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from rota.core.tasks.model import TaskState
from rota.errors import Invalid
from rota.gateways.http.routing.parameters import MAX_PARAMETERS, parse
from rota.messages import Request


class Sample(Request, frozen=True, kw_only=True):
    name: str | None = None
    limit: Annotated[int, Meta(ge=1)] = 10
    flag: bool = False
    tag: tuple[str, ...] = ()
    state: Annotated[tuple[TaskState, ...], Meta(description="x")] = ()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"", Sample()),
        (b"name=&limit=&state=", Sample()),
        (b"name=null&limit=3", Sample(name="null", limit=3)),
        (b"flag=true", Sample(flag=True)),
        (b"tag=a&tag=b,c", Sample(tag=("a", "b,c"))),
        (
            b"state=queued,running&state=failed",
            Sample(state=(TaskState.QUEUED, TaskState.RUNNING, TaskState.FAILED)),
        ),
        (b"name=%C3%B6+1", Sample(name="ö 1")),
    ],
)
def test_a_query_string_becomes_its_struct(query: bytes, expected: Sample) -> None:
    assert parse(query, Sample) == expected


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (b"nmae=x", "nmae"),
        (b"nmae=", "nmae"),
        (b"limit=0", "limit"),
        (b"limit=x", "limit"),
        (b"limit=1&limit=2", "limit"),
        (b"state=queued,odd", "state"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(query: bytes, field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse(query, Sample)

    assert refusal.value.facts["field"] == field


@pytest.mark.parametrize("query", [b"name=%ff", b"name=\xff", b"a=b&" * (MAX_PARAMETERS + 1)])
def test_what_is_no_query_string_is_refused(query: bytes) -> None:
    with pytest.raises(Invalid):
        parse(query, Sample)


@given(st.binary(max_size=60))
def test_any_bytes_are_parameters_or_a_refusal(query: bytes) -> None:
    with suppress(Invalid):
        assert isinstance(parse(query, Sample), Sample)
