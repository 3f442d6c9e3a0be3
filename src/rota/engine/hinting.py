"""Which commits do the others on a store have to hear of at once?"""

from rota.engine.batch import BatchResult


def concerns_others(result: BatchResult) -> bool:
    """Whether somebody may wait elsewhere for what a batch has brought; beats concern nobody."""
    shards = result.shards
    return bool(
        result.told.notices
        or result.applied.opened
        or result.keeping.granted
        or shards.pushes
        or any(changes.are_lasting for changes in shards.changes.values())
    )
