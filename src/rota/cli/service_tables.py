"""How are services told to people? As facts, a row for each member, and a strip of letters."""

from collections.abc import Iterator, Sequence

from rota.cli.output import Facts, Table
from rota.cli.strips import (
    Strip,
    awaiting,
    beyond,
    giving_up,
    labels,
    number_width,
    ranges,
    sign,
    strip_of,
)
from rota.cli.times import relative
from rota.core.shards.members import PROTOCOL
from rota.messages.shards import MemberView, ServicePage, ServiceView

SETTLED = "settled"


def service_table(page: ServicePage) -> Table:
    return Table(
        ("service", "shards", "pinned", "members", "unowned", "moving", "generation"),
        [
            (
                service.name,
                service.shard_count,
                "yes" if service.pinned else "no",
                service.member_count,
                service.unowned,
                service.moving,
                service.generation,
            )
            for service in page.items
        ],
        empty="no services; one begins when its first worker registers, "
        "or with: rota services pin NAME COUNT",
    )


def service_facts(service: ServiceView) -> Facts:
    left_over = beyond(service)
    return Facts(
        [
            ("service", service.name),
            ("shards", _shard_count(service)),
            ("members", len(service.members)),
            ("unowned", service.unowned),
            ("moving", service.moving),
            ("beyond the count", f"{len(left_over)} to be given up" if left_over else None),
            ("generation", service.generation),
            ("takes", "any worker" if service.min_protocol < PROTOCOL else "protocol 2 alone"),
        ]
    )


def _shard_count(service: ServiceView) -> str:
    if service.pinned:
        return f"{service.shard_count}, pinned: what workers say does not count"
    return f"{service.shard_count}, as its workers say"


def member_table(service: ServiceView, *, most_ranges: int | None = None) -> Table:
    """A row for each member, with its letters; of what is the same for all, nothing."""
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
        empty="no members: shards wait for the first worker that registers",
    )


def extra_columns(members: Sequence[MemberView]) -> tuple[str, ...]:
    """The columns that tell members apart."""
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
    """What a member is at."""
    if member.fenced is not None:
        return "fenced"
    if member.draining:
        return f"draining, {len(member.shards)} left" if member.shards else "drained"
    lost, gained = giving_up(member), awaiting(member)
    moves = [f"gives up {lost}"] if lost else []
    moves += [f"awaits {gained}"] if gained else []
    return ", ".join(moves) or SETTLED


def strip_lines(service: ServiceView, *, width: int) -> Iterator[str]:
    """The strip of a service in letters, with what they mean."""
    names = labels(len(service.members))
    strip = strip_of(service, width=width, label_width=max(map(len, names), default=1))
    indent = number_width(service.shard_count)
    for first, cells in strip.lines():
        letters = "".join(sign(cell, names).ljust(strip.cell_width) for cell in cells)
        yield f"{first:>{indent}} {letters}".rstrip()
    yield from meanings(strip)


def meanings(strip: Strip, *, is_coloured: bool = False) -> list[str]:
    """What is to be known of a strip, as far as there is any of it."""
    said = []
    if strip.shards_per_cell > 1:
        said.append(f"{strip.shards_per_cell} shards in each place")
    if any(cell.is_moving for cell in strip.cells):
        colours = ", in the colour of the next" if is_coloured else ""
        said.append(f"small letters: to be given up by this owner{colours}")
    if any(cell.owner is None for cell in strip.cells):
        said.append("dots: owned by nobody")
    return ["; ".join(said)] if said else []


def fences(members: Sequence[MemberView]) -> list[str]:
    """Why members are fenced, a line each."""
    return [f"{one.worker_id}: {one.fenced}" for one in members if one.fenced is not None]
