"""The `/docs` page, which shows the OpenAPI document.

The page loads nothing from elsewhere, and its content security policy makes the browser enforce it.
"""

import base64
import hashlib
import re
from importlib.resources import files

from rota.gateways.http.routing.responses import HttpResponse

HTML = "text/html; charset=utf-8"

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def docs() -> HttpResponse:
    text = files("rota.gateways.http").joinpath("html", "docs.html").read_text(encoding="utf-8")
    policy = "; ".join(
        (
            "default-src 'none'",
            "connect-src 'self'",
            f"script-src {_hashes(_SCRIPT.findall(text))}",
            f"style-src {_hashes(_STYLE.findall(text))}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    headers = (
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    )
    return HttpResponse(text.encode(), media_type=HTML, headers=headers)


def _hashes(blocks: list[str]) -> str:
    """The hashes by which the policy allows these blocks and no others."""
    if not blocks:
        return "'none'"
    digests = (hashlib.sha256(block.encode()).digest() for block in blocks)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
