"""Runs one command of a page: to its end, until it shows a sign of life, or at a keyboard."""

import json
import re
import signal
from collections.abc import Callable
from functools import partial

from tests.docs.commands.placeholders import filled_in
from tests.docs.commands.shell import until
from tests.docs.commands.stage import Stage

# Commands that run until they are ended: how they begin or end, and their sign of life.
ENDLESS = (
    (r"^rota up|BIND_PORT=\d+ rota up", "http"),
    (r"^rota worker ", "runs:"),
    (r"^rota dev ", "http"),
    (r"^rota events --follow", "task-"),
    (r"^curl -N ", "event:"),
    (r"^rota services show \w+ --watch", "orders"),
    (r"^python manage.py rota_worker", "runs:"),
    (r"uvicorn main:app", "Application startup complete"),
)
# Commands that say nothing: what is so when they run.
SILENT: dict[str, Callable[[Stage], bool]] = {
    r"python orders.py$": lambda stage: any(
        one["worker_id"] not in {"web-1", "shell-1"} for one in stage.members("orders")
    ),
}
# Commands that ask at a terminal: what is typed, and what is shown then.
ASKING = {r"^rota replay .* --step$": ("next\ncontinue\n", "ctx.step(charge, 10)")}


def perform(stage: Stage, text: str, *, is_kept: bool = False) -> None:
    """Run a command as the page has it, with its placeholders filled in.

    Is kept: a command that runs until it is ended goes on while the next ones run.
    """
    text = filled_in(stage, text)
    if not stage.terminal.assign(text):
        _execute(stage, text, is_kept=is_kept)


def _execute(stage: Stage, text: str, *, is_kept: bool) -> None:
    for pattern, is_so in SILENT.items():
        if re.search(pattern, text):
            process = stage.keep(stage.terminal.start(text))
            until(partial(is_so, stage))
            process.signal(signal.SIGINT)
            assert process.ends() in {0, 130}, process.output
            return
    for pattern, (typed, shown) in ASKING.items():
        if re.search(pattern, text):
            assert shown in stage.terminal.type(text, typed)
            return
    for pattern, sign in ENDLESS:
        if re.search(pattern, text) and not text.endswith("--help"):
            _start(stage, text, sign, is_kept=is_kept)
            return
    stage.note(stage.terminal.run(text))


def _start(stage: Stage, text: str, sign: str, *, is_kept: bool) -> None:
    if not is_kept:
        with stage.stirring():
            stage.terminal.show_life(text, sign)
        return
    line = stage.keep(stage.terminal.start(text)).wait_for(sign)
    if served := re.search(r"https://127.0.0.1:\d+", line):
        stage.fixed["https://rota.example:7070"] = served.group()


def serve_with_tokens(stage: Stage, store: str) -> None:
    """Start the coordinator for whose store the first token was made."""
    process = stage.keep(stage.terminal.start(f"rota up --json --store {store}"))
    stage.move_to(json.loads(process.wait_for('"url"'))["url"])
