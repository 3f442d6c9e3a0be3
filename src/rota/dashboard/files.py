"""The dashboard's static files, with their types and content hashes.

All are read once, at start, and looked up by name: no path of a request reaches the file system.
"""

import gzip
import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".md": "text/plain; charset=utf-8",
    ".LICENSE": "text/plain; charset=utf-8",
}
MIN_ZIPPED_BYTES = 1_000  # below this a zipped answer saves no packet


class StaticFile(NamedTuple):
    content: bytes
    zipped: bytes | None  # None: too small
    media_type: str
    tag: str  # changes with the content

    @classmethod
    def of(cls, content: bytes, media_type: str) -> "StaticFile":
        zipped = gzip.compress(content, 6, mtime=0) if len(content) >= MIN_ZIPPED_BYTES else None
        return cls(content, zipped, media_type, digest(content))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


def read_all() -> dict[str, StaticFile]:
    """Read every file of `static/` that has a known media type, by its path there."""
    found: dict[str, StaticFile] = {}
    _walk(files("rota.dashboard").joinpath("static"), "", found)
    return found


def _walk(folder: Traversable, prefix: str, found: dict[str, StaticFile]) -> None:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        name = prefix + entry.name
        if entry.is_dir():
            _walk(entry, f"{name}/", found)
            continue
        media_type = MEDIA_TYPES.get(_ending(entry.name))
        if media_type is not None:
            found[name] = StaticFile.of(entry.read_bytes(), media_type)


def _ending(name: str) -> str:
    return name[name.rfind(".") :] if "." in name else ""


def edition_of(found: dict[str, StaticFile]) -> str:
    """A digest of all files together, which changes with any of them."""
    return digest("".join(f"{name} {file.tag}\n" for name, file in sorted(found.items())).encode())
