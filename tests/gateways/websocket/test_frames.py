"""Frames that are read and written without the library: it must find nothing amiss with them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from rota.messages.frames import FrameReader, framed

MOST_BYTES = 70_000
MASKS = st.binary(min_size=4, max_size=4)
SIZES = st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536]) | st.integers(0, 300)
MESSAGES = SIZES.map(lambda size: bytes(number % 251 for number in range(size)))
# What is not a whole binary message.
OTHERS = st.sampled_from(
    [
        Frame(Opcode.TEXT, b"a text"),
        Frame(Opcode.PING, b"anybody?"),
        Frame(Opcode.PONG, b""),
        Frame(Opcode.CLOSE, b"\x03\xe8"),
        Frame(Opcode.BINARY, b"a beginning", fin=False),
        Frame(Opcode.CONT, b"a middle", fin=False),
        Frame(Opcode.CONT, b"an end"),
    ]
)


def written(one: bytes | Frame, *, is_masked: bool) -> bytes:
    frame = one if isinstance(one, Frame) else Frame(Opcode.BINARY, one)
    return frame.serialize(mask=is_masked)


def cut(data: bytes, places: Sequence[int]) -> Iterator[bytes]:
    """The same bytes, as they may come in."""
    for start, end in pairwise(
        sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    ):
        yield data[start:end]


def parsed(data: bytes, *, is_masked: bool) -> Frame:
    """What the library makes of bytes that are one frame and nothing else."""
    reader = StreamReader()
    reader.feed_data(data)
    parsing = Frame.parse(reader.read_exact, mask=is_masked, max_size=None)
    with pytest.raises(StopIteration) as end:
        next(parsing)
    assert not reader.buffer
    frame: Frame = end.value.value
    return frame


@given(
    said=st.lists(MESSAGES | OTHERS, max_size=6),
    places=st.lists(st.integers(0, 1_000_000), max_size=8),
    is_masked=st.booleans(),
)
def test_messages_are_found_however_the_bytes_are_cut_and_all_else_is_passed_on_whole(
    *, said: list[bytes | Frame], places: list[int], is_masked: bool
) -> None:
    frames = [written(one, is_masked=is_masked) for one in said]
    reader = FrameReader(is_masked=is_masked, most_bytes=MOST_BYTES)

    pieces = [
        piece for data in cut(b"".join(frames), places) if data for piece in reader.feed(data)
    ]

    assert [piece.raw for piece in pieces] == frames
    found = [piece.message for piece in pieces]
    assert found == [None if isinstance(one, Frame) else one for one in said]


@given(message=MESSAGES, mask=st.none() | MASKS)
def test_the_library_reads_what_is_written_here(message: bytes, mask: bytes | None) -> None:
    frame = parsed(framed(message, mask), is_masked=mask is not None)

    assert (frame.opcode, frame.fin, bytes(frame.data)) == (Opcode.BINARY, True, message)


def test_a_frame_whose_mask_is_missing_or_too_much_is_left_to_the_library() -> None:
    for is_masked in (True, False):
        frame = written(b"message", is_masked=not is_masked)
        reader = FrameReader(is_masked=is_masked, most_bytes=MOST_BYTES)

        assert [(piece.raw, piece.message) for piece in reader.feed(frame)] == [(frame, None)]


def test_a_frame_with_a_bit_that_means_nothing_here_is_left_to_the_library() -> None:
    frame = bytes([0x82 | 0x40]) + written(b"message", is_masked=True)[1:]
    reader = FrameReader(is_masked=True, most_bytes=MOST_BYTES)

    assert [(piece.raw, piece.message) for piece in reader.feed(frame)] == [(frame, None)]


def test_what_is_too_large_is_left_to_the_library_from_its_first_bytes_on() -> None:
    frame = written(bytes(MOST_BYTES + 1), is_masked=True)
    reader = FrameReader(is_masked=True, most_bytes=MOST_BYTES)

    assert not [*reader.feed(frame[:9])]  # how much it is, is not known yet
    (first,) = reader.feed(frame[9:20])
    (rest,) = reader.feed(frame[20:])

    assert (first.message, rest.message) == (None, None)
    assert first.raw + rest.raw == frame
    library = StreamReader()
    library.feed_data(first.raw)
    with pytest.raises(PayloadTooBig):
        next(Frame.parse(library.read_exact, mask=True, max_size=MOST_BYTES))


def test_a_frame_that_comes_byte_by_byte_is_not_copied_for_each() -> None:
    frame = written(bytes(MOST_BYTES), is_masked=True)
    reader = FrameReader(is_masked=True, most_bytes=MOST_BYTES)
    rest = reader._rest

    pieces = [piece for byte in frame for piece in reader.feed(bytes([byte]))]

    assert [piece.message for piece in pieces] == [bytes(MOST_BYTES)]
    assert reader._rest is rest  # the one buffer that grew in place
