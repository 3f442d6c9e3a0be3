"""Workflows over HTTP: store, validate, show and list definitions."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.core import access
from rota.core.access import Action
from rota.core.workflow.commands import (
    Publishing,
    PutCode,
    PutWorkflow,
    WorkflowKept,
    named_version,
)
from rota.core.workflow.definition.model import Definition, DefinitionProblem
from rota.core.workflow.functions.model import CodeDefinition
from rota.core.workflow.program import AnyDefinition
from rota.core.workflow.records import Version
from rota.errors import Invalid, InvalidWorkflow, WorkflowNotFound
from rota.gateways.definitions.checking import Checked
from rota.gateways.http.routing.endpoint import BodyReading, HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery, page_of
from rota.gateways.http.routing.responses import HttpResponse, encoded
from rota.gateways.validation import invalid, invalid_field
from rota.messages import (
    Request,
    WorkflowCheck,
    WorkflowDetail,
    WorkflowPage,
    WorkflowProblem,
    WorkflowView,
)

PROBLEMS_SHOWN = 3  # in the text of an error; its list has them all

CODE = re.compile(r'\s*\{\s*"code"\s*:')  # how the definition of a function begins

routes = Routes("Workflows")


class PutQuery(Request, frozen=True, kw_only=True):
    publish: Annotated[
        Publishing,
        Meta(
            description="Whether it becomes the current version: `always`, only if it is `new`, "
            "or `never`, for a try-out that is started by its number."
        ),
    ] = "always"


class CodeRequest(Request, frozen=True, kw_only=True):
    """The definition of a function."""

    code: Any


# --- keeping and checking ------------------------------------------------------------------------


@routes.put(
    "/api/workflows/{workflow}",
    Action.DEPLOY,
    body=Definition,
    reads=BodyReading.TEXT,
    body_limit="MAX_DEFINITION_BYTES",
    answer=WorkflowView,
    status=201,
    other_statuses=(200,),
    errors=(Invalid, InvalidWorkflow),
)
async def put(call: HttpCall[str, PutQuery]) -> HttpResponse:
    """Store a definition.

    JSON or YAML, whatever the content type says. Another content is a new version (201); the
    same content again is the version it was (200). Either way it becomes the current version,
    which runs have that are started by the workflow's name, unless `publish` says otherwise. The
    definition may leave its name out, which is then that of the path.

    A workflow that is a function is stored as `{"code": {…}}`. A worker's token may do that, for
    the queues that it is bound to, and never in place of a definition that is data;
    it becomes the current version when it is new.
    """
    if CODE.match(call.body):
        return await _put_code(call)
    access.check(call.caller, Action.OPERATE)
    definition = _valid(await _checked(call, call.path["workflow"]))
    if definition.name != call.path["workflow"]:
        raise invalid_field("name", f"{definition.name!r} is not the name in the path")
    reply = await call.coordinator.execute(PutWorkflow(definition, call.query.publish))
    return await _stored(call, reply)


async def _put_code(call: HttpCall[str, PutQuery]) -> HttpResponse:
    name = call.path["workflow"]
    try:
        code = msgspec.json.decode(call.body, type=CodeRequest).code
        if not isinstance(code, dict):
            raise invalid_field("code", "must be an object")
        definition = msgspec.convert({"name": name, **code}, CodeDefinition)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"not JSON: {error}") from None
    if definition.name != name:
        raise invalid_field("name", f"{definition.name!r} is not the name in the path")
    reply = await call.coordinator.execute(PutCode(definition=definition, by=call.caller))
    return await _stored(call, reply)


async def _stored(call: HttpCall[str, PutQuery], reply: WorkflowKept) -> HttpResponse:
    current = await call.coordinator.queries.workflows.current(reply.version.name)
    return encoded(_view(reply.version, current), 201 if reply.is_new else 200)


async def _checked(call: HttpCall[str, Any], name: str | None) -> Checked:
    reader, token_id = call.services.definitions, call.caller.token_id
    return await call.while_connected(reader.read(call.body, name, token_id=token_id))


def _valid(checked: Checked) -> Definition:
    """A definition without any problem."""
    problems = checked.problems
    if checked.definition is None or problems:
        text = "; ".join(
            f"{one.path or 'definition'}: {one.message}" for one in problems[:PROBLEMS_SHOWN]
        )
        more = (
            f"; and {len(problems) - PROBLEMS_SHOWN} more" if len(problems) > PROBLEMS_SHOWN else ""
        )
        raise InvalidWorkflow(text + more, problems=[_problem(one) for one in problems])
    return checked.definition


@routes.post(
    "/api/workflows/validate",
    Action.READ,
    body=Definition,
    reads=BodyReading.TEXT,
    body_limit="MAX_DEFINITION_BYTES",
)
async def validate(call: HttpCall[str, NoQuery]) -> WorkflowCheck:
    """Validate a definition without storing it.

    JSON or YAML. All problems at once, each with its path and line. A definition with warnings can
    be stored and run; each names an expression that probably fails.
    """
    checked = await _checked(call, None)
    is_ok = checked.definition is not None and not checked.problems
    return WorkflowCheck(
        ok=is_ok,
        problems=[_problem(one) for one in checked.problems],
        warnings=[_problem(one) for one in checked.warnings],
    )


def _problem(problem: DefinitionProblem) -> WorkflowProblem:
    return WorkflowProblem(
        path=problem.path,
        code=problem.code,
        message=problem.message,
        line=problem.line,
        column=problem.column,
    )


# --- looking -----------------------------------------------------------------------------------


@routes.get("/api/workflows", Action.READ)
async def listing(call: HttpCall[None, PageQuery]) -> WorkflowPage:
    """List workflows by name, the current version of each."""
    # By name, which is also the cursor.
    access.check_unbound(call.caller, "workflows")
    query = call.query
    found = await call.coordinator.queries.workflows.all()
    if query.cursor is not None:
        found = [version for version in found if version.name > query.cursor]
    page, next_cursor = page_of(found, query.limit, lambda version: version.name)
    return WorkflowPage(
        items=[_view(one, one.version if one.put_number >= 0 else None) for one in page],
        next_cursor=next_cursor,
    )


@routes.get("/api/workflows/{workflow}", Action.READ, errors=(WorkflowNotFound,))
async def show(call: HttpCall[None, NoQuery]) -> WorkflowDetail:
    """Show the current version of a workflow, and list all of them."""
    access.check_unbound(call.caller, "workflows")
    name, queries = call.path["workflow"], call.coordinator.queries
    versions = await queries.workflows.versions(name)
    if not versions:
        raise WorkflowNotFound(name)
    current = max(versions, key=lambda one: (one.put_number, one.version))
    definition = await queries.workflows.definition(name, current.version)
    assert definition is not None
    number = current.version if current.put_number >= 0 else None
    return _detail(current, definition, versions, number)


@routes.get("/api/workflows/{workflow}/versions/{version}", Action.READ, errors=(WorkflowNotFound,))
async def show_version(call: HttpCall[None, NoQuery]) -> WorkflowDetail:
    """Show one version of a workflow."""
    access.check_unbound(call.caller, "workflows")
    queries = call.coordinator.queries
    name, number = named_version("{workflow}@{version}".format_map(call.path))
    version = None if number is None else await queries.workflows.version(name, number)
    definition = (
        None if version is None else await queries.workflows.definition(name, version.version)
    )
    if version is None or definition is None:
        raise WorkflowNotFound(name, number)
    return _detail(version, definition, [], await queries.workflows.current(name))


def _view(version: Version, current: int | None) -> WorkflowView:
    return WorkflowView(
        name=version.name,
        version=version.version,
        hash=version.hash,
        created_at_ms=version.created_at_ms,
        is_current=version.version == current,
    )


def _detail(
    version: Version, definition: AnyDefinition, versions: list[Version], current: int | None
) -> WorkflowDetail:
    return WorkflowDetail(
        name=version.name,
        version=version.version,
        hash=version.hash,
        created_at_ms=version.created_at_ms,
        definition=definition if isinstance(definition, Definition) else None,
        code=definition if isinstance(definition, CodeDefinition) else None,
        is_current=version.version == current,
        versions=[_view(one, current) for one in versions],
    )
