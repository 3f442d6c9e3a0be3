"""Tables of services and members."""

from collections.abc import Callable, Iterator, Sequence

from rota.cli.render.formatting import relative
from rota.cli.render.output import Facts, Table, table
from rota.cli.render.shard_bar import (
    ShardBar,
    cell_text,
    labels,
    number_width,
    pending_count,
    ranges,
    revoked_count,
    shard_bar_of,
    surplus_shards,
)
from rota.core.shards.members import PROTOCOL
from rota.messages.shards import MemberView, ServicePage, ServiceSummary, ServiceView

SETTLED = "settled"
NO_SERVICES = "no services; a worker that registers creates one, or: rota services pin NAME COUNT"


def service_table(page: ServicePage) -> Table:
    columns: dict[str, Callable[[ServiceSummary], object]] = {
        "service": lambda service: service.name,
        "shards": lambda service: service.shard_count,
        "pinned": lambda service: "yes" if service.pinned else "no",
        "members": lambda service: service.member_count,
        "unowned": lambda service: service.unowned,
        "moving": lambda service: service.moving,
        "generation": lambda service: service.generation,
    }
    return table(
        page.items,
        columns,
        empty=NO_SERVICES,
    )


def service_facts(service: ServiceView) -> Facts:
    left_over = surplus_shards(service)
    return Facts(
        [
            ("service", service.name),
            ("shards", _shard_count(service)),
            ("members", len(service.members)),
            ("unowned", service.unowned),
            ("moving", service.moving),
            ("beyond the count", f"{len(left_over)} to be given up" if left_over else None),
            ("generation", service.generation),
            ("accepts", "any worker" if service.min_protocol < PROTOCOL else "only protocol 2"),
        ]
    )


def _shard_count(service: ServiceView) -> str:
    if service.pinned:
        return f"{service.shard_count}, pinned"
    return f"{service.shard_count}, set by its workers"


def member_table(service: ServiceView, *, most_ranges: int | None = None) -> Table:
    """A row per member with its letters; columns that are equal for all are left out."""
    members = service.members
    extra = extra_columns(members)
    return Table(
        ("", "worker", "health", "state", "has", *extra, "last beat", "shards"),
        [
            (
                label,
                member.worker_id,
                member.health.value,
                state(member),
                len(member.shards),
                *extra_cells(member, extra),
                relative(member.last_heartbeat_ms),
                ranges(member.shards, most=most_ranges),
            )
            for label, member in zip(labels(len(members)), members, strict=True)
        ],
        empty="no members: the first worker that registers gets the shards",
    )


def extra_columns(members: Sequence[MemberView]) -> tuple[str, ...]:
    """The columns in which members differ from the default."""
    wanted = {
        "weight": any(member.weight != 1 for member in members),
        "at most": any(member.max_shards is not None for member in members),
        "protocol": any(member.protocol != PROTOCOL for member in members),
    }
    return tuple(column for column, is_wanted in wanted.items() if is_wanted)


def extra_cells(member: MemberView, columns: Sequence[str]) -> list[str]:
    cells = {
        "weight": f"{member.weight:g}",
        "at most": "-" if member.max_shards is None else str(member.max_shards),
        "protocol": str(member.protocol),
    }
    return [cells[column] for column in columns]


def state(member: MemberView) -> str:
    """The state of a member in a few words."""
    if member.fenced is not None:
        return "fenced"
    if member.draining:
        return f"draining, {len(member.shards)} left" if member.shards else "drained"
    lost, gained = revoked_count(member), pending_count(member)
    moves = [f"gives up {lost}"] if lost else []
    moves += [f"awaits {gained}"] if gained else []
    return ", ".join(moves) or SETTLED


def bar_lines(service: ServiceView, *, width: int) -> Iterator[str]:
    """The shard bar of a service in letters, with its legend."""
    names = labels(len(service.members))
    bar = shard_bar_of(service, width=width, label_width=max(map(len, names), default=1))
    indent = number_width(service.shard_count)
    for first, cells in bar.lines():
        letters = "".join(cell_text(cell, names).ljust(bar.cell_width) for cell in cells)
        yield f"{first:>{indent}} {letters}".rstrip()
    yield from legend(bar)


def legend(bar: ShardBar, *, is_coloured: bool = False) -> list[str]:
    """The legend of a bar: only the signs that occur in it."""
    notes = []
    if bar.shards_per_cell > 1:
        notes.append(f"{bar.shards_per_cell} shards in each place")
    if any(cell.is_moving for cell in bar.cells):
        colours = ", in the colour of the next" if is_coloured else ""
        notes.append(f"small letters: to be given up by this owner{colours}")
    if any(cell.owner is None for cell in bar.cells):
        notes.append("dots: no owner")
    return ["; ".join(notes)] if notes else []


def fence_reasons(members: Sequence[MemberView]) -> list[str]:
    """Why members are fenced, one line each."""
    return [f"{one.worker_id}: {one.fenced}" for one in members if one.fenced is not None]
