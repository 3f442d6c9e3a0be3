import json

import pytest

from rota import errors
from rota.errors import RotaError
from rota.gateways.errors import presentable
from rota.gateways.http.routing.responses import problem, unknown_path, wrong_method


def test_a_problem_has_its_fields_and_the_facts_beside_them() -> None:
    answer = problem(errors.Invalid("no", field="name", code="mine", status=1))

    assert (answer.status, answer.media_type) == (400, "application/problem+json")
    assert json.loads(answer.content) == {
        "code": "invalid",
        "title": "The request is not valid",
        "status": 400,
        "detail": "no",
        "field": "name",
    }


@pytest.mark.parametrize(
    "error",
    [errors.TooMany("x"), errors.Overloaded("x", retry_after_s=7), errors.Unavailable("x")],
)
def test_who_should_come_back_is_told_when(error: RotaError) -> None:
    (header,) = problem(error).headers

    assert header == ("retry-after", str(error.facts.get("retry_after_s", 1)))


def test_facts_that_are_not_json_do_not_break_the_answer() -> None:
    answer = problem(errors.Invalid("no", what={1, 2}, kind=object))

    assert answer.status == 400


def test_an_unknown_path_says_not_found() -> None:
    assert "not found" in unknown_path("/x").detail


def test_a_wrong_method_names_the_right_ones() -> None:
    assert problem(wrong_method("PUT", "/x", ["POST", "GET"])).headers == (("allow", "GET, POST"),)


def test_our_own_mistakes_are_not_shown() -> None:
    secret = "the plan is in drawer 3"

    for error in (ValueError(secret), errors.StoreError(secret), KeyError(secret)):
        shown = presentable(error)
        assert secret not in json.dumps([shown.detail, shown.facts])
        assert shown.status in {500, 503}


def test_theirs_are() -> None:
    error = errors.TaskNotFound("x")

    assert presentable(error) is error
