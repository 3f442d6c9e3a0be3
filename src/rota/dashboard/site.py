"""How does the dashboard reach a browser?

Its one page is served under every address that it has a view for, so that each can be opened,
kept and sent on. Scripts and styles are served under the name of their edition and may be kept for
ever; the page names the edition and is asked for anew each time. The policy sent with the page lets
the browser run nothing but these files and talk to nobody but this coordinator: what tasks carry is
hostile.
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
ASK_AGAIN = "no-cache"  # kept, but not used without asking whether it is still the same
PAGE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

_MAP = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)

Headers = dict[str, str]


def routes(lost: ASGIApp) -> list[BaseRoute]:
    """The dashboard's part of the site; `lost` answers for files that are not there."""
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
    """What the browser may do for this page: as good as nothing but show our own files."""
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
    """The page with the address of its edition filled in, and all files named to be fetched."""
    static = f"/static/{edition}"
    modules = [name for name in found if name.endswith(".js") and _is_needed_at_once(name)]
    # Those of single pages last: they have the last word on what is theirs.
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
    # Layout of graphs runs in a worker, and the theme is no module.
    return name not in {"theme.js", "vendor/dagre.js"} and not name.endswith("worker_thread.js")


class _File:
    """One file, the same for everybody."""

    def __init__(self, file: StaticFile, headers: Headers, cached: str = ASK_AGAIN) -> None:
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
    """Files by name: `/static/EDITION/app.js`, and without the edition for whoever types it."""

    def __init__(self, found: Mapping[str, StaticFile], edition: str, lost: ASGIApp) -> None:
        headers = {"x-content-type-options": "nosniff"}
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
