"""Valid values and bytes made wrong: cut, doubled, of another type, too large, too deep.

Everything is drawn from the `Random` that is given, so the same seed makes the same input.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any

Json = Any

# Numbers and texts that Python's own encoder cannot write are put in afterwards, by their names.
RAW = {
    "@huge-exponent@": "1e999",
    "@huge-integer@": "9" * 400,
    "@negative-zero@": "-0",
    "@half-surrogate@": r'"\ud800"',
    "@nul@": r'"\u0000"',
    "@deep-list@": "[" * 2_000 + "]" * 2_000,
    "@deep-object@": '{"a":' * 500 + "1" + "}" * 500,
    "@unclosed-list@": "[" * 500,
    "@not-a-number@": "NaN",
    "@doubled-key@": '{"name":"a","name":1}',
}
ODD: tuple[Json, ...] = (
    *RAW,
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63) - 1,
    1e308,
    "",
    "x",
    "\x00",
    "\u202e\uffff",
    "é" * 300,
    "x" * 10_000,
    [],
    {},
    [[]],
    [None] * 50,
    {"": None},
    {"$ref": "http://127.0.0.1:1/x"},
    {"__class__": "x"},
)


def odd_value(rng: Random) -> Json:
    return rng.choice(ODD)


def mutated(rng: Random, value: Json) -> Json:
    """A value like this one, with something wrong in one place, or in a few."""
    result = value
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        result = _mutated_once(rng, result)
    return result


def _mutated_once(rng: Random, value: Json) -> Json:
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(sorted(value))
        return _changed_field(rng, value, name)
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return rng.choice(
            (
                value[:place] + value[place + 1 :],
                value + value,
                [*value[:place], _mutated_once(rng, value[place]), *value[place + 1 :]],
                value * 200 if len(value) < 5 else value,
            )
        )
    return rng.choice((odd_value(rng), [value], {"a": value}, str(value), odd_value(rng)))


def _changed_field(rng: Random, value: dict[str, Json], name: str) -> Json:
    rest = {other: one for other, one in value.items() if other != name}
    return rng.choice(
        (
            rest,
            {**value, name: odd_value(rng)},
            {**value, name: _mutated_once(rng, value[name])},
            {**rest, name.upper(): value[name]},
            {**value, rng.choice(("id", "wait_ms", "limit", "", "__proto__")): odd_value(rng)},
        )
    )


def written(value: Json) -> bytes:
    """JSON, or nearly."""
    text = json.dumps(value, ensure_ascii=False)
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode("utf-8", "surrogatepass")


def _cut(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _doubled(rng: Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.randrange(1, 64))
    return data[:end] + data[start:end] * rng.choice((1, 1, 50)) + data[end:]


def _flipped(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _inserted(rng: Random, data: bytes) -> bytes:
    place = rng.randrange(len(data) + 1)
    junk = rng.choice(
        (b"\xff\xfe", b"\x00", b"\r\n", b"\r\n\r\n", b"\xed\xa0\x80", rng.randbytes(8))
    )
    return data[:place] + junk + data[place:]


BYTE_CHANGES: tuple[Callable[[Random, bytes], bytes], ...] = (_cut, _doubled, _flipped, _inserted)


def damaged(rng: Random, data: bytes) -> bytes:
    """Bytes like these, with something wrong with them whatever they mean."""
    return rng.choice(BYTE_CHANGES)(rng, data)


def pieces(rng: Random, data: bytes) -> list[bytes]:
    """The same bytes as they may come in: at once, or in a few parts."""
    if len(data) < 2 or rng.random() < 0.6:
        return [data]
    cuts = sorted(rng.randrange(1, len(data)) for _ in range(rng.randrange(1, 4)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
