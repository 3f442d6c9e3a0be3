"""Groups of commands."""

import inspect

import click


class CommandGroup(click.Group):
    """A group whose help has the whole summary of each command; click cuts it after one line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, _summary(command)) for name, command in sorted(self.commands.items())]
            )


def _summary(command: click.Command) -> str:
    """The first paragraph of the command's help."""
    first, *_ = inspect.cleandoc(command.help or "").split("\n\n")
    return " ".join(first.split())
