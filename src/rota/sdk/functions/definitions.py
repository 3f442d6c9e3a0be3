"""The definition of a workflow in code: its source, and the fingerprint that makes a version.

The fingerprint is that of the syntax tree, without positions, docstrings and decorators: comments
and the layout of the code do not make another version.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from functools import cached_property
from inspect import Parameter
from typing import Any

from rota.core.limits import MAX_NAME_LENGTH
from rota.core.workflow.functions.model import MAX_APPROVALS
from rota.errors import Invalid
from rota.sdk.arguments import Arguments

MAX_SOURCE_LENGTH = 262_144
FINGERPRINT_LENGTH = 32
DEFAULT_APPROVAL = "approval"


class FunctionArguments(Arguments):
    """The signature of a durable function as the schema of its input: all but its context."""

    def __init__(self, function: Callable[..., Any], *, task: str) -> None:
        super().__init__(function, task=task)
        parameters = [*self._signature.parameters.values()]
        positional = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
        if not parameters or parameters[0].kind not in positional:
            raise Invalid(
                f"workflow {task!r}: its function takes the context first: def {task}(ctx)"
            )
        self._signature = self._signature.replace(parameters=parameters[1:])


class FunctionSource:
    """The source of a function, read when it is first needed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @cached_property
    def _lines(self) -> tuple[list[str], int]:
        try:
            return inspect.getsourcelines(self._function)
        except (OSError, TypeError):  # typed into a prompt, or made by a program
            return [], 1

    @property
    def text(self) -> str:
        return textwrap.dedent("".join(self._lines[0]))[:MAX_SOURCE_LENGTH]

    @property
    def first_line(self) -> int:
        return max(1, self._lines[1])

    @cached_property
    def fingerprint(self) -> str:
        try:
            content = ast.dump(_normalised(ast.parse(self.text))) if self.text else ""
        except SyntaxError:  # a lambda, or an expression in the middle of a line
            content = self.text
        if not content:
            code = self._function.__code__
            content = repr((code.co_code, code.co_names, [repr(one) for one in code.co_consts]))
        return hashlib.sha256(content.encode()).hexdigest()[:FINGERPRINT_LENGTH]

    @cached_property
    def approvals(self) -> tuple[str, ...]:
        """The names under which the source asks for approvals, as far as it spells them out.

        That is `approval` for `ctx.approval(…)`, `ship` for `ctx.using(name="ship").approval(…)`.
        """
        try:
            tree = ast.parse(self.text)
        except SyntaxError:
            return ()
        names = [_approval_name(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        found = dict.fromkeys(name for name in names if name is not None)
        return tuple(found)[:MAX_APPROVALS]


def _approval_name(call: ast.Call) -> str | None:
    """The name of the approval that a call asks for; None: it asks for none, or computes it."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr != "approval":
        return None
    context = function.value
    if not isinstance(context, ast.Call):
        return DEFAULT_APPROVAL
    given = {one.arg: one.value for one in context.keywords}
    if None in given:  # `using(**options)`
        return None
    match given.get("name", ast.Constant(DEFAULT_APPROVAL)):
        case ast.Constant(value=str(name)) if 0 < len(name) <= MAX_NAME_LENGTH:
            return name
        case _:
            return None


def _normalised(tree: ast.Module) -> ast.Module:
    """The tree without what does not change what a function does."""
    outer = True
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if outer:
            node.decorator_list = []
            outer = False
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
    return tree
