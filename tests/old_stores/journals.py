"""Write the journals of many runs, with all that may befall a run, into a file.

The files beside this module were made by it, each with the code of the version that its name says:

    python -m tests.old_stores.journals before_scopes.journals.xz

`test_old_journals.py` replays them.
"""

import lzma
import random
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rota.core.workflow.definition.model import Definition
from rota.core.workflow.events import RunEvent
from tests.core.workflow.driving import Drive
from tests.core.workflow.growing import Growth
from tests.core.workflow.test_properties import INPUT, World

RUNS = 250
MOST_STEPS = 300  # of a run; the others end before
TROUBLE = (0.0, 0.05, 0.3)
SLICES = (None, None, 3, 20)


class OldJournal(Struct, frozen=True):
    """A definition, and the journal of a run of it."""

    definition: Definition
    input: Any
    entries: list[tuple[RunEvent, list[dict[str, Any]]]]


class _Thrown(Growth):
    """A definition drawn with plain dice."""

    def pick(self, *choices: Any) -> Any:
        return choices[self.draw.randrange(len(choices))]


def thrown_definition(dice: random.Random) -> Definition:
    growth = _Thrown(dice)
    first, last = growth.block(3)
    if growth.room > 0:
        growth.link(last, growth.task())
    document = {
        "name": "grown",
        "initial_node": first,
        "nodes": growth.nodes,
        "transitions": growth.transitions,
    }
    return msgspec.convert(document, Definition)


def _lived(seed: int) -> World:
    dice = random.Random(seed)
    trouble, slice_steps = dice.choice(TROUBLE), dice.choice(SLICES)
    world = World.begun(thrown_definition(dice), seed, trouble, slice_steps)
    for _ in range(MOST_STEPS):
        if world.is_ended:
            if world.state not in {"failed", "timed_out"} or dice.random() < 0.2:
                break
            world.retry()
        elif dice.random() < 0.004:
            world.cancel("enough")
        else:
            world.happen()
    return world


def _journal(drive: Drive) -> OldJournal:
    entries = [
        (event, msgspec.json.decode(msgspec.json.encode(decisions)))
        for event, decisions in drive.journal
    ]
    return OldJournal(drive.graph.definition, INPUT, entries)


if __name__ == "__main__":
    journals = [_journal(_lived(seed)) for seed in range(RUNS)]
    content = msgspec.json.encode(journals)
    (Path(__file__).parent / sys.argv[1]).write_bytes(lzma.compress(content, preset=9))
