r"""The size of a compiled regular expression of `matches`: an upper bound.

The engine takes linear time in the text, but also in its own states, and it compiles a pattern
each time it is used. A short pattern can have very many states: `(\pL{100}){9}` takes a tenth of
a second to compile.
"""

import re
from functools import lru_cache
from typing import NamedTuple

STEPS_PER_STATE = 8  # to compile it
MOST_STATES = 160_000  # that the engine takes; a larger pattern fails after as much work
_MOST_LENGTH = 1_000  # of a pattern whose states are counted
_CLASS_STATES = 5_000  # of a class of Unicode characters, such as \pL, to compile
_MOST_REPEATS = 1_000  # that the engine takes

_TOKEN = re.compile(
    r"""\\[pP](?:\{[^}]*\}|.)   # a class by its name
    |\\.                        # another escape
    |\[\^?\]?(?:\\.|\[:[^\]]*:\]|[^\]\\])*\]  # a class by its characters
    |\{\d+(?:,\d*)?\}           # a repetition
    |.""",
    re.VERBOSE | re.DOTALL,
)
_RANGE = re.compile(r"[^\\]-[^\]\\]")
_REPETITION = re.compile(r"\{(\d+)(?:,(\d*))?\}\Z")


class States(NamedTuple):
    compiled: int  # that have to be made
    active: int  # that a text can be in at once


@lru_cache(maxsize=1_024)
def states(pattern: str) -> States:
    """An upper bound of the states of a pattern."""
    if len(pattern) > _MOST_LENGTH:
        return States(MOST_STATES, MOST_STATES)
    folding = 3 if "(?" in pattern and "i" in pattern else 1  # upper and lower case as one
    compiled = folding * _counted(pattern, _CLASS_STATES)
    return States(min(compiled, MOST_STATES), min(_counted(pattern, 1), MOST_STATES))


def _counted(pattern: str, class_states: int) -> int:
    groups: list[list[int]] = [[]]  # the sizes of the parts of each open group
    for part in _TOKEN.findall(pattern):
        parts = groups[-1]
        if part == "(":
            groups.append([])
        elif part == ")":
            if len(groups) > 1:
                groups.pop()
                groups[-1].append(sum(parts) + 2)
        elif repetition := _REPETITION.match(part):
            least, most = repetition.groups()
            times = max(int(least) + 1, int(most) if most else 0)
            if parts:
                parts[-1] *= min(times, _MOST_REPEATS)
        elif part.startswith(("\\p", "\\P")):
            parts.append(class_states)
        elif part[0] == "[" and len(part) > 1:
            named = part.count("\\p") + part.count("\\P")
            negated = 5 if part[1] == "^" else 0
            parts.append(len(_RANGE.sub("-", part)) - 1 + negated + class_states * named)
        else:
            parts.append(5 if part in {".", "\\S", "\\D", "\\W"} else 1)
    return sum(sum(group) for group in groups)
