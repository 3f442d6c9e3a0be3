"""What was paid and what was undone, by a run and all runs inside it."""

from collections.abc import Sequence

from tests.core.workflow.driving import Performed


def _places(performed: Sequence[Performed]) -> tuple[dict[float, int], dict[float, int]]:
    """When each payment was made, and when it was undone, by its number."""
    paid: dict[float, int] = {}
    undone: dict[float, int] = {}
    for place, one in enumerate(performed):
        if one.task == "pay":
            paid[one.result["n"]] = place
        elif one.task == "undo":
            number = one.payload["result"]["n"]
            assert number in paid, "what was never paid was undone"
            assert number not in undone, "a payment was undone twice"
            undone[number] = place
    return paid, undone


def unpaired(performed: Sequence[Performed]) -> list[float]:
    """The payments that were not undone."""
    paid, undone = _places(performed)
    return [number for number in paid if number not in undone]


def out_of_order(performed: Sequence[Performed]) -> list[tuple[float, float]]:
    """Payments that were undone before a later one of the same run, or of a run inside it."""
    paid, undone = _places(performed)
    found = []
    for early, paid_early in paid.items():
        for late, paid_late in paid.items():
            outer, inner = performed[paid_early].lineage, performed[paid_late].lineage
            if early not in undone or late not in undone or inner[: len(outer)] != outer:
                continue
            if paid_early < paid_late < undone[early] < undone[late]:
                found.append((early, late))
    return found
