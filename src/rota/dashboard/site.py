"""Serves the dashboard's files to browsers.

All files are read once, at start, and looked up by name: no path of a request reaches the file
system. The one page is served under the address of every view, so that each can be opened,
bookmarked and shared. Scripts and styles are served under the name of their edition and cached for
ever; the page names the edition and is revalidated each time. The content security policy of the
page allows only these files and this coordinator: the contents of tasks are hostile.

Inside another application the dashboard is below a path of that application, which the scope names
as `ROOT`. Its files find that path by their own address; only the page has to be told.
"""

import base64
import gzip
import hashlib
import posixpath
import re
from collections.abc import Mapping
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec
from msgspec import Struct
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".md": "text/plain; charset=utf-8",
    ".LICENSE": "text/plain; charset=utf-8",
}
MIN_ZIPPED_BYTES = 1_000  # below this a zipped answer saves no packet
# The first part of every address that is a view of the dashboard.
PAGES = (
    "needs",
    "tasks",
    "queues",
    "limits",
    "failures",
    "workers",
    "workflows",
    "runs",
    "schedules",
    "services",
    "memory",
    "locks",
    "webhooks",
    "access",
    "events",
    "system",
)
FOR_EVER = "public, max-age=31536000, immutable"
ROOT = "rota.root"  # the key in a scope; its value is "/rota", for example
MOST_ROOTS = 16  # whose pages are kept
REVALIDATE = "no-cache"  # cached, but only used after revalidation
PAGE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

# The source of a static import or export; `import(…)` is none.
_IMPORT = re.compile(r"""\b(?:from|import)\s*["']([^"']+)["']""")
_ROOT = re.compile(r"(?:/[\w.~-]+)*", re.ASCII)
_MAP = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)

Headers = dict[str, str]


# --- files --------------------------------------------------------------------------------------


class _ImportMap(Struct):
    imports: dict[str, str]


class StaticFile:
    """One file, as it is served."""

    def __init__(self, content: bytes, media_type: str) -> None:
        self.content = content
        self.media_type = media_type
        self.tag = digest(content)  # changes with the content

    @cached_property
    def zipped(self) -> bytes | None:
        """The content for browsers that take it zipped; None: it is too small.

        Zipped when it is first asked for: most coordinators that start are not looked at.
        """
        if len(self.content) < MIN_ZIPPED_BYTES:
            return None
        return gzip.compress(self.content, 6, mtime=0)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


@cache
def read_all() -> Mapping[str, StaticFile]:
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
            found[name] = StaticFile(entry.read_bytes(), media_type)


def _ending(name: str) -> str:
    return name[name.rfind(".") :] if "." in name else ""


def edition_of(found: Mapping[str, StaticFile]) -> str:
    """A digest of all files together, which changes with any of them."""
    return digest("".join(f"{name} {file.tag}\n" for name, file in sorted(found.items())).encode())


# --- routes -------------------------------------------------------------------------------------


def routes(lost: ASGIApp) -> list[BaseRoute]:
    """The routes of the dashboard; `lost` answers for unknown files."""
    found = read_all()
    index = _Index(lost)
    return [
        Route("/", index, methods=["GET"]),
        *(Route(f"/{name}", index, methods=["GET"]) for name in PAGES),
        *(Route(f"/{name}/{{rest:path}}", index, methods=["GET"]) for name in PAGES),
        Route("/static/{rest:path}", _Files(found, edition_of(found), lost), methods=["GET"]),
    ]


@lru_cache(maxsize=MOST_ROOTS)
def page_below(root: str) -> "_File":
    """The page with the addresses of its files below a path."""
    found = read_all()
    page = _page(found, edition_of(found), root)
    return _File(page, {**PAGE_HEADERS, "content-security-policy": policy(page.content)})


def lost_page(root: str) -> Response:
    """The page for an address that is no view: it says so, and leads to every view."""
    page = page_below(root if _ROOT.fullmatch(root) else "")
    headers = {**page.headers, "cache-control": "no-store"}
    return Response(page.file.content, 404, headers, page.file.media_type)


def policy(page: bytes) -> str:
    """The content security policy of the page."""
    (imports,) = _MAP.findall(page)
    allowed = base64.b64encode(hashlib.sha256(imports).digest()).decode()
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'sha256-{allowed}'",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _page(found: Mapping[str, StaticFile], edition: str, root: str) -> StaticFile:
    """The page with the address of its edition and the links to all files."""
    static = f"{root}/static/{edition}"
    modules = sorted(_imported(found, "app.js"))
    # Styles of single pages come last, so that they override the others.
    sheets = sorted(
        (name for name in found if name.endswith(".css")),
        key=lambda name: (name.startswith("pages/"), name),
    )
    named = {
        "{preloads}": [f'<link rel="modulepreload" href="{static}/{one}">' for one in modules],
        "{styles}": [f'<link rel="stylesheet" href="{static}/{one}">' for one in sheets],
    }
    text = found["index.html"].content.decode().replace("{static}", static)
    for place, links in named.items():
        text = text.replace(place, "\n".join(links))
    return StaticFile(text.encode(), found["index.html"].media_type)


def _imported(found: Mapping[str, StaticFile], first: str) -> set[str]:
    """The module and everything it imports statically: what the browser needs at once.

    The modules of pages are imported when they are opened.
    """
    (text,) = _MAP.findall(found["index.html"].content)
    vendored = msgspec.json.decode(text, type=_ImportMap).imports
    reached: set[str] = set()
    waiting = [first]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        for source in _IMPORT.findall(found[name].content.decode()):
            path = vendored.get(source, "").removeprefix("{static}/")
            waiting.append(
                path or posixpath.normpath(posixpath.join(posixpath.dirname(name), source))
            )
    return reached


class _Index:
    """Serves the page, with the addresses of its files below the path of the request."""

    def __init__(self, lost: ASGIApp) -> None:
        self._lost = lost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root: str = scope.get(ROOT, "")
        # The path becomes part of the page. A server may take it from the address of a request.
        page = page_below(root) if _ROOT.fullmatch(root) else self._lost
        await page(scope, receive, send)


class _File:
    """Serves one file."""

    def __init__(self, file: StaticFile, headers: Headers, cached: str = REVALIDATE) -> None:
        self.file = file
        self.headers = {**headers, "cache-control": cached}

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        asked = dict(scope["headers"])
        tag = f'"{self.file.tag}"'
        headers = {**self.headers, "etag": tag, "vary": "accept-encoding"}
        if tag.encode() in asked.get(b"if-none-match", b""):
            await _send(send, 304, headers, b"")
            return
        content = self.file.content
        headers["content-type"] = self.file.media_type
        if self.file.zipped is not None and b"gzip" in asked.get(b"accept-encoding", b""):
            content = self.file.zipped
            headers["content-encoding"] = "gzip"
        headers["content-length"] = str(len(content))
        await _send(send, 200, headers, b"" if scope["method"] == "HEAD" else content)


class _Files:
    """Serves files by name: `/static/EDITION/app.js`, and without the edition for people."""

    def __init__(self, found: Mapping[str, StaticFile], edition: str, lost: ASGIApp) -> None:
        headers = {
            "x-content-type-options": "nosniff",
            "cross-origin-resource-policy": "same-origin",
        }
        self._by_name: dict[str, _File] = {}
        self._lost = lost
        for name, file in found.items():
            if name != "index.html":
                self._by_name[name] = _File(file, headers)
                self._by_name[f"{edition}/{name}"] = _File(file, headers, FOR_EVER)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        file = self._by_name.get(scope["path_params"]["rest"])
        await (file or self._lost)(scope, receive, send)


async def _send(send: Send, status: int, headers: Headers, content: bytes) -> None:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": content})
