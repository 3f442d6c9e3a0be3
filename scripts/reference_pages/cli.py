"""The page on the command line: every command with its arguments and options, and exit codes."""

import inspect
from collections.abc import Iterator, Sequence

import click

from reference_pages.markdown import code, codes, document, table
from rota.cli.main import cli
from rota.cli.render.output import EXIT_CODES
from rota.settings import environment_name, field_names

SHARED = ("--url", "--token", "--json")  # told once, not with each command


def page() -> str:
    found = dict(_commands("rota", cli))
    shared = [one for one in _options_of(found["rota tasks ls"]) if one.opts[0] in SHARED]
    told = {(one.opts[0], one.help) for one in shared}
    return document(
        "# Command line",
        f"{inspect.cleandoc(cli.help or '')} `rota COMMAND --help` shows the same.",
        table(("command", "meaning"), (_summary(path, one) for path, one in found.items())),
        "Commands print tables for people and, with `--json`, one JSON document on stdout for "
        "programs. What is said beside the answer goes to stderr. An error is one line there: "
        "`error: TEXT (code)`.",
        "## Exit codes",
        table(("code", "meaning"), ((code(int(one)), text) for one, text in EXIT_CODES.items())),
        "## Shared options",
        _options(shared),
        *(block for path, command in found.items() for block in _command(path, command, told)),
    )


def _commands(path: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by the words that call it."""
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(f"{path} {name}", command)
        else:
            yield f"{path} {name}", command


def _summary(path: str, command: click.Command) -> tuple[str, str]:
    first, *_ = inspect.cleandoc(command.help or "").split("\n\n")
    return f"[`{path}`](#{path.replace(' ', '-')})", first


Told = set[tuple[str, str | None]]  # names and meanings of options


def _command(path: str, command: click.Command, told: Told) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"## `{path}`"
    yield f"```text\n{path} {' '.join(command.collect_usage_pieces(context))}\n```"
    yield inspect.cleandoc(command.help or "")

    options = _options_of(command)
    settings = [one for one in options if set(_variables(one)) & _SETTINGS]
    if len(settings) == len(_SETTINGS):
        yield "Every [setting](settings.md) is an option."
        options = [one for one in options if one not in settings]
    shared = [one for one in options if (one.opts[0], one.help) in told]
    if own := [one for one in options if one not in shared]:
        yield _options(own)
    yield f"And the shared {codes(one.opts[0] for one in shared)}."


_SETTINGS = {environment_name(name) for name in field_names()}


def _options_of(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option)]


def _options(options: Sequence[click.Option]) -> str:
    return table(("option", "default", "variable", "meaning"), map(_row, options))


def _row(option: click.Option) -> tuple[str, ...]:
    context = click.Context(click.Command("rota"))
    values = "" if option.is_flag else option.make_metavar(context)
    names = codes([*option.opts, *option.secondary_opts])
    default = _default(option)
    return (
        f"{names} {code(values)}" if values else names,
        code(default) if default else "",
        codes(_variables(option)),
        option.help or "",
    )


def _default(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    return str(option.default) if option.show_default else ""


def _variables(option: click.Option) -> list[str]:
    names = option.envvar or []
    return [names] if isinstance(names, str) else list(names)
