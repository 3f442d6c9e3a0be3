"""Where is a member to be reached, and how much does it understand?

ZeroMQ gives each connection an address when it comes, and does not say when it is gone. So what is
kept here is bounded, and may be out of date: what cannot be delivered is dropped, and a member is
told everything anew with its next beat.

A member's address is that of the last message of its that was accepted. Whoever speaks in the name
of another, or of an incarnation that was replaced, is answered, but gets nothing meant for that
member.
"""

from rota.engine.figures import WireFigures

MOST_ADDRESSES = 100_000  # members whose address is kept; those beyond are told when they ask
MOST_NEWER_PEERS = 100_000  # connections known to understand more than the old protocol

Key = tuple[str, str]  # service and worker


class Peers:
    def __init__(self, figures: WireFigures) -> None:
        self._figures = figures
        self._addresses: dict[Key, bytes] = {}
        self._newer: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def note_address(self, key: Key, address: bytes) -> None:
        if self._addresses.get(key) == address:
            return
        self._addresses.pop(key, None)
        self._addresses[key] = address
        if len(self._addresses) > MOST_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]
        self._figures.peers = len(self._addresses)

    def address(self, key: Key) -> bytes | None:
        return self._addresses.get(key)

    def forget_member(self, key: Key, address: bytes) -> None:
        """The member is not there any more; unless it is elsewhere by now."""
        if self._addresses.get(key) == address:
            del self._addresses[key]
            self._figures.peers = len(self._addresses)

    def note_newer(self, address: bytes) -> None:
        if address in self._newer:
            return
        self._newer[address] = None
        if len(self._newer) > MOST_NEWER_PEERS:
            del self._newer[next(iter(self._newer))]

    def is_newer(self, address: bytes) -> bool:
        return address in self._newer

    def forget_connection(self, address: bytes) -> None:
        self._newer.pop(address, None)
