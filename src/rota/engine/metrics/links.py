"""What the links between coordinators have carried since the start of this process."""

import dataclasses
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class LinkTraffic:
    """What a link has carried so far; bytes with those of lengths and empty messages."""

    frames_in: int = 0
    frames_out: int = 0
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def add(self, other: "LinkTraffic") -> None:
        for one in dataclasses.fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass
class LinkMetrics:
    """The links that are open, and all those that have ended. It belongs to the event loop."""

    open: dict[LinkTraffic, None] = field(default_factory=dict)
    ended: LinkTraffic = field(default_factory=LinkTraffic)

    def begin(self, traffic: LinkTraffic) -> None:
        self.open[traffic] = None

    def end(self, traffic: LinkTraffic) -> None:
        if self.open.pop(traffic, traffic) is None:
            self.ended.add(traffic)

    def total(self) -> LinkTraffic:
        total = LinkTraffic()
        for one in (self.ended, *self.open):
            total.add(one)
        return total
