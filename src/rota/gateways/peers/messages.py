"""Messages on a byte stream: a length of four bytes, and that many bytes behind it."""

LENGTH_BYTES = 4
EMPTY = bytes(LENGTH_BYTES)  # a message without content, which shows that its sender is alive


class MessageTooLong(Exception):  # noqa: N818
    """A length over the limit; nothing was allocated for it."""

    def __init__(self, length: int, most: int) -> None:
        super().__init__(f"a message of {length} bytes, over the limit of {most}")


def with_length(message: bytes) -> bytes:
    return len(message).to_bytes(LENGTH_BYTES) + message


class MessageReader:
    """Cuts a byte stream into its messages."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> bytes | None:
        """Take the next message; None: it has not arrived whole.

        Raises `MessageTooLong` as soon as the length of a message is known to be over the limit.
        """
        buffer = self._buffer
        if len(buffer) < LENGTH_BYTES:
            return None
        length = int.from_bytes(buffer[:LENGTH_BYTES])
        if length > self._most_bytes:
            raise MessageTooLong(length, self._most_bytes)
        end = LENGTH_BYTES + length
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            message = bytes(view[LENGTH_BYTES:end])
        del buffer[:end]
        return message

    def take_rest(self) -> bytes:
        """Take what has arrived behind the last message."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest
