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

from rota.errors import Invalid
from rota.sdk.arguments import Arguments

MAX_SOURCE_LENGTH = 262_144
FINGERPRINT_LENGTH = 32


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
