"""The address of each member, and the protocol it speaks.

ZeroMQ gives each connection an address when it opens, and does not report when it closes. So the
book is bounded and may be out of date: what cannot be delivered is dropped, and a member receives
its whole assignment with its next heartbeat.

A member's address is that of its last accepted message. A peer that speaks for another member, or
for a replaced incarnation, is answered, but receives no pushes for that member.
"""

from rota.engine.metrics.metrics import WireMetrics

MOST_ADDRESSES = 100_000  # members whose address is stored; others receive answers, and no pushes
MOST_NEWER_PEERS = 100_000  # connections known to understand more than the old protocol

Key = tuple[str, str]  # service and worker


class AddressBook:
    def __init__(self, metrics: WireMetrics) -> None:
        self._metrics = metrics
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
        self._metrics.peers = len(self._addresses)

    def address(self, key: Key) -> bytes | None:
        return self._addresses.get(key)

    def forget_member(self, key: Key, address: bytes) -> None:
        """Forget a member that has gone from this address, unless it has another one by now."""
        if self._addresses.get(key) == address:
            del self._addresses[key]
            self._metrics.peers = len(self._addresses)

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
