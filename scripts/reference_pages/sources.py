"""What do the comments in the code say? Those above a name, or else behind it."""

import ast
import inspect
import textwrap
from types import ModuleType


def comments(source: ModuleType | type) -> dict[str, str]:
    """Each name that a module or class assigns, with its comment; empty where it has none."""
    text = textwrap.dedent(inspect.getsource(source))
    lines = text.splitlines()
    body = ast.parse(text).body
    if isinstance(body[0], ast.ClassDef):
        body = body[0].body
    return {
        name: _above(lines[: node.lineno - 1]) or _behind(lines[_last(node)])
        for node in body
        for name in _names(node)
    }


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case _:
            return []


def _last(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - 1


def _behind(line: str) -> str:
    text = line.rpartition("  # ")[2] if "  # " in line else ""
    return "" if text.startswith("noqa") else text


def _above(lines: list[str]) -> str:
    found: list[str] = []
    for line in reversed(lines):
        if not line.lstrip().startswith("# "):
            break
        found.insert(0, line.lstrip()[2:])
    return " ".join(found)
