"""How does `rota --help` stay fast? By knowing each command without importing it.

A command's module, with everything it needs (the store, the server, the SDK), is imported when
the command is used; the list of commands and their one-line summaries is a table.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from rota.cli.output import ExitCode, Refusal, refusal_of, refusal_of_usage
from rota.errors import RotaError


class LazyCommand(NamedTuple):
    module: str
    attribute: str
    summary: str


class RotaGroup(click.Group):
    """The top of the command line: lazy commands below, errors as one line above."""

    def __init__(self, *, lazy: Mapping[str, LazyCommand], **settings: Any) -> None:
        super().__init__(**settings)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = self.lazy.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.lazy.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,
    ) -> Any:
        """Run a command line; every way it can go wrong ends as one line and an exit code."""
        try:
            answer = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            raise SystemExit(ExitCode.INTERRUPTED) from None
        except RotaError as error:
            refusal = refusal_of(error)
        except Refusal as error:
            refusal = error
        except click.ClickException as error:
            refusal = refusal_of_usage(error)
        else:
            if not standalone_mode:
                return answer
            # click hands over what `Context.exit` was given; commands themselves return nothing.
            raise SystemExit(answer if isinstance(answer, int) else ExitCode.OK)
        refusal.show()
        raise SystemExit(refusal.ends_with)
