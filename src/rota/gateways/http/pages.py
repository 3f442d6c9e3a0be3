"""What does a person see who reads about the API in a browser?

Pages bring all they need with them and load nothing from elsewhere; the policy they are sent with
makes the browser hold them to it.
"""

import base64
import hashlib
import re
from importlib.resources import files

from rota.gateways.http.answers import Answered

HTML = "text/html; charset=utf-8"

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def docs() -> Answered:
    return _page("docs.html")


def _page(name: str) -> Answered:
    text = files("rota.gateways.http").joinpath("html", name).read_text(encoding="utf-8")
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
    return Answered(text.encode(), media_type=HTML, headers=headers)


def _hashes(blocks: list[str]) -> str:
    """What a policy calls these very blocks; others are not run."""
    if not blocks:
        return "'none'"
    digests = (hashlib.sha256(block.encode()).digest() for block in blocks)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
