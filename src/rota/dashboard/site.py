"""Serves the dashboard's files to browsers.

Its one page is served under the address of every view, so that each can be opened, bookmarked and
shared. Scripts and styles are served under the name of their edition and cached for ever; the page
names the edition and is revalidated each time. The content security policy of the page allows only
these files and this coordinator: the contents of tasks are hostile.
"""

import base64
import hashlib
import re
from collections.abc import Mapping

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rota.dashboard.files import StaticFile, edition_of, read_all

# The first part of every address that is a view of the dashboard.
PAGES = (
    "tasks",
    "queues",
    "failures",
    "workers",
    "workflows",
    "runs",
    "services",
    "events",
    "system",
)
FOR_EVER = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"  # cached, but only used after revalidation
PAGE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

_MAP = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)

Headers = dict[str, str]


def routes(lost: ASGIApp) -> list[BaseRoute]:
    """The routes of the dashboard; `lost` answers for unknown files."""
    found = read_all()
    edition = edition_of(found)
    page = _page(found, edition)
    index = _File(page, {**PAGE_HEADERS, "content-security-policy": policy(page.content)})
    return [
        Route("/", index, methods=["GET"]),
        *(Route(f"/{name}", index, methods=["GET"]) for name in PAGES),
        *(Route(f"/{name}/{{rest:path}}", index, methods=["GET"]) for name in PAGES),
        Route("/static/{rest:path}", _Files(found, edition, lost), methods=["GET"]),
    ]


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


def _page(found: Mapping[str, StaticFile], edition: str) -> StaticFile:
    """The page with the address of its edition and the links to all files."""
    static = f"/static/{edition}"
    modules = [name for name in found if name.endswith(".js") and _is_needed_at_once(name)]
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
    return StaticFile.of(text.encode(), found["index.html"].media_type)


def _is_needed_at_once(name: str) -> bool:
    # The layout of graphs runs in a web worker, and the theme is not a module.
    return name not in {"theme.js", "vendor/dagre.js"} and not name.endswith("worker_thread.js")


class _File:
    """Serves one file."""

    def __init__(self, file: StaticFile, headers: Headers, cached: str = REVALIDATE) -> None:
        self._file = file
        self._headers = {**headers, "cache-control": cached}

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        asked = dict(scope["headers"])
        tag = f'"{self._file.tag}"'
        headers = {**self._headers, "etag": tag, "vary": "accept-encoding"}
        if tag.encode() in asked.get(b"if-none-match", b""):
            await _send(send, 304, headers, b"")
            return
        content = self._file.content
        headers["content-type"] = self._file.media_type
        if self._file.zipped is not None and b"gzip" in asked.get(b"accept-encoding", b""):
            content = self._file.zipped
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
