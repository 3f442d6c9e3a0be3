"""Workflows over HTTP: keep a definition, check one, look at what is kept."""

import asyncio
import re
from typing import Annotated

import msgspec
import yaml  # type: ignore[import-untyped]  # has none
from msgspec import Meta

from rota.core import limits
from rota.core.access import Action
from rota.core.workflow.commands import PutWorkflow, named_version
from rota.core.workflow.definition import Definition, canonical
from rota.core.workflow.problems import Problem
from rota.core.workflow.reading import read
from rota.core.workflow.records import Version
from rota.engine.run_commands import WorkflowKept
from rota.errors import InvalidWorkflow, WorkflowNotFound
from rota.gateways.http.answers import Answered, encoded
from rota.gateways.http.bodies import invalid_field
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery, Reading
from rota.messages import (
    Request,
    WorkflowCheck,
    WorkflowDetail,
    WorkflowPage,
    WorkflowProblem,
    WorkflowView,
)

PROBLEMS_TOLD = 3  # in the text of an error; its list has them all
_NAMELESS = re.compile(r"missing required field `name`")


class WorkflowsQuery(Request, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    cursor: Annotated[
        str | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


# --- keeping and checking ------------------------------------------------------------------------


async def put(call: Call[str, NoQuery]) -> Answered:
    definition = await asyncio.to_thread(_definition, call.body, call.parameter)
    if definition.name != call.parameter:
        raise invalid_field("name", f"{definition.name!r} is not the name in the path")
    reply = await call.coordinator.command(PutWorkflow(definition))
    assert isinstance(reply, WorkflowKept)
    return encoded(_view(reply.version), 201 if reply.is_new else 200)


def _definition(text: str, name: str) -> Definition:
    """A definition without any problem; one without a name has the name of its path."""
    definition, problems = _read(text)
    if any(not one.path and _NAMELESS.search(one.message) for one in problems):
        definition, problems = _read(_named(text, name))
    if definition is None or problems:
        told = "; ".join(f"{one.path or 'definition'}: {one.message}" for one in problems[:3])
        more = (
            f"; and {len(problems) - PROBLEMS_TOLD} more" if len(problems) > PROBLEMS_TOLD else ""
        )
        raise InvalidWorkflow(told + more, problems=[_problem(one) for one in problems])
    return definition


def _read(text: str) -> tuple[Definition | None, list[Problem]]:
    try:
        definition, problems = read(text)
        if definition is not None:
            canonical(definition)
    except (UnicodeError, yaml.YAMLError):
        # By escapes, a text can have halves of characters in it that no encoding has.
        message = "it has characters that no text has"
        return None, [Problem(path="", code="unreadable", message=message)]
    return definition, problems


def _named(text: str, name: str) -> str:
    """The text with a name, and every line where it was."""
    quoted = msgspec.json.encode(name).decode()
    if text.lstrip().startswith("{"):
        return text.replace("{", f'{{"name": {quoted}, ', 1)
    return f"{text}\nname: {quoted}\n"


async def validate(call: Call[str, NoQuery]) -> WorkflowCheck:
    _, problems = await asyncio.to_thread(_read, call.body)
    return WorkflowCheck(ok=not problems, problems=[_problem(one) for one in problems])


def _problem(problem: Problem) -> WorkflowProblem:
    return WorkflowProblem(
        path=problem.path, code=problem.code, message=problem.message, line=problem.line
    )


# --- looking -----------------------------------------------------------------------------------


async def listing(call: Call[None, WorkflowsQuery]) -> WorkflowPage:
    """By name, which is also the cursor."""
    query = call.query
    found = await call.coordinator.queries.workflows()
    if query.cursor is not None:
        found = [version for version in found if version.name > query.cursor]
    page = found[: query.limit]
    return WorkflowPage(
        items=[_view(version) for version in page],
        next_cursor=page[-1].name if len(found) > len(page) else None,
    )


async def show(call: Call[None, NoQuery]) -> WorkflowDetail:
    name, queries = call.parameter, call.coordinator.queries
    versions = await queries.workflow_versions(name)
    if not versions:
        raise WorkflowNotFound(name)
    definition = await queries.definition(name, versions[0].version)
    assert definition is not None
    return _detail(versions[0], definition, versions)


async def show_version(call: Call[None, NoQuery]) -> WorkflowDetail:
    queries = call.coordinator.queries
    name, number = named_version(f"{call.parameter}@{call.second}")
    version = None if number is None else await queries.workflow(name, number)
    definition = None if version is None else await queries.definition(name, version.version)
    if version is None or definition is None:
        raise WorkflowNotFound(name, number)
    return _detail(version, definition, [])


def _view(version: Version) -> WorkflowView:
    return msgspec.convert(version, WorkflowView, from_attributes=True)


def _detail(version: Version, definition: Definition, versions: list[Version]) -> WorkflowDetail:
    return WorkflowDetail(
        name=version.name,
        version=version.version,
        hash=version.hash,
        created_at_ms=version.created_at_ms,
        definition=definition,
        versions=[_view(one) for one in versions],
    )


ENDPOINTS = (
    Endpoint(
        method="PUT",
        path="/api/workflows/{workflow}",
        summary="Keep a definition",
        description="JSON or YAML, whatever the content type says. Another content is a new "
        "version (201); the same content again is the version it was (200). The definition may "
        "leave its name out, which is then that of the path.",
        noun="Workflows",
        action=Action.OPERATE,
        handler=put,
        body=Definition,
        is_body_needed=True,
        reads=Reading.TEXT,
        answer=WorkflowView,
        status=201,
        other_statuses=(200,),
        errors=(InvalidWorkflow,),
    ),
    Endpoint(
        method="POST",
        path="/api/workflows/validate",
        summary="Check a definition, and keep nothing",
        description="JSON or YAML. All problems at once, each with its path and line.",
        noun="Workflows",
        action=Action.READ,
        handler=validate,
        body=Definition,
        is_body_needed=True,
        reads=Reading.TEXT,
        answer=WorkflowCheck,
    ),
    Endpoint(
        method="GET",
        path="/api/workflows",
        summary="List workflows by name, the newest version of each",
        noun="Workflows",
        action=Action.READ,
        handler=listing,
        query=WorkflowsQuery,
        answer=WorkflowPage,
    ),
    Endpoint(
        method="GET",
        path="/api/workflows/{workflow}",
        summary="Show the newest version of a workflow, and which others there are",
        noun="Workflows",
        action=Action.READ,
        handler=show,
        answer=WorkflowDetail,
        errors=(WorkflowNotFound,),
    ),
    Endpoint(
        method="GET",
        path="/api/workflows/{workflow}/versions/{version}",
        summary="Show one version of a workflow",
        noun="Workflows",
        action=Action.READ,
        handler=show_version,
        answer=WorkflowDetail,
        errors=(WorkflowNotFound,),
    ),
)
