"""Pages are paragraphs and tables, joined by blank lines."""

from collections.abc import Iterable, Sequence


def document(*blocks: str) -> str:
    return "\n\n".join(block.strip("\n") for block in blocks if block)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def code(value: object) -> str:
    return f"`{value}`"


def codes(values: Iterable[object]) -> str:
    return ", ".join(code(value) for value in values)


def sentence(text: str) -> str:
    """A comment from the code as a sentence of the page."""
    text = text.strip()
    return text if not text or text.endswith(".") else f"{text[0].upper()}{text[1:]}."


def number(value: object) -> str:
    """A number as people write it."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


_MS_UNITS = ((24 * 3_600_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def measured(name: str, value: object) -> str:
    """A number, and in brackets what it is in larger units, read from the end of its name."""
    text = code(value)
    if not isinstance(value, int):
        return text
    if name.lower().endswith("_ms"):
        for size, unit in _MS_UNITS:
            if value >= size and value % size == 0:
                return f"{text} ({number(value // size)} {unit})"
    if name.lower().endswith("_bytes") and value >= 1024**2:
        return f"{text} ({value // 1024**2} MiB)"
    return text
