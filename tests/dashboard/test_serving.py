"""The dashboard's files as a browser gets them."""

import base64
import hashlib
import re

import pytest

from rota.dashboard.site import MEDIA_TYPES, PAGES, read_all
from tests.gateways.serving import Api

FILES = read_all()
OURS = {name: file for name, file in FILES.items() if not name.startswith("vendor/")}
# Names of XML dialects are written like addresses and never fetched.
NAMESPACE = "http://www.w3.org/"


def edition(page: str) -> str:
    found = re.search(r'src="/static/(\w+)/app\.js"', page)
    assert found is not None
    return found[1]


async def test_every_view_has_an_address_that_opens_the_dashboard(api: Api) -> None:
    home = await api.get("/")

    for path in [f"/{page}" for page in PAGES] + ["/tasks/343c6056", "/workers/a%2Fb"]:
        answer = await api.get(path)
        assert answer.status_code == 200
        assert answer.content == home.content


async def test_a_browser_gets_a_page_for_an_address_that_is_none(api: Api) -> None:
    asked_by_a_browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    home = await api.get("/")

    lost = await api.get("/nope", headers=asked_by_a_browser)
    by_a_program = await api.get("/nope")
    below_the_api = await api.get("/api/nope", headers=asked_by_a_browser)

    assert (lost.status_code, lost.content) == (404, home.content)
    assert lost.headers["content-security-policy"] == home.headers["content-security-policy"]
    assert lost.headers["cache-control"] == "no-store"
    for answer in (by_a_program, below_the_api):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_the_policy_lets_the_browser_load_and_call_nothing_but_us(api: Api) -> None:
    page = await api.get("/")
    rules = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))

    imports = re.findall(r'<script type="importmap">(.*?)</script>', page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(imports[0].encode()).digest()).decode()
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'self' 'sha256-{digest}'"
    assert rules["style-src"] == rules["connect-src"] == rules["worker-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"


async def test_the_page_has_no_script_or_style_of_its_own(api: Api) -> None:
    page = (await api.get("/")).text

    assert "<style" not in page
    assert " style=" not in page
    assert not re.search(r"\son\w+=", page)
    assert re.findall(r"<script(?![^>]*(?:src=|importmap))", page) == []


async def test_files_are_sent_with_their_type_and_kept_for_ever_under_their_edition(
    api: Api,
) -> None:
    name = edition((await api.get("/")).text)

    for path, kind in (("app.js", ".js"), ("app.css", ".css"), ("icon.svg", ".svg")):
        answer = await api.get(f"/static/{name}/{path}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == MEDIA_TYPES[kind]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "immutable" in answer.headers["cache-control"]


async def test_a_browser_that_has_the_file_is_told_so(api: Api) -> None:
    for path in ("/", "/static/app.js"):
        first = await api.get(path)
        again = await api.get(path, headers={"if-none-match": first.headers["etag"]})

        assert first.headers["cache-control"] == "no-cache"
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]


async def test_large_files_travel_zipped_to_those_who_can_unzip(api: Api) -> None:
    plain = await api.get("/static/vendor/uplot.js", headers={"accept-encoding": "identity"})
    zipped = await api.get("/static/vendor/uplot.js", headers={"accept-encoding": "gzip"})

    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert int(zipped.headers["content-length"]) < int(plain.headers["content-length"]) / 2
    assert zipped.content == plain.content


@pytest.mark.parametrize(
    "path",
    [
        "/static/../site.py",
        "/static/%2e%2e/site.py",
        "/static/..%2fsite.py",
        "/static//etc/passwd",
        "/static/nowhere.js",
        "/static/index.html",
        "/static/",
    ],
)
async def test_no_path_leads_out_of_the_files(api: Api, path: str) -> None:
    answer = await api.get(path)

    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


async def test_the_dashboard_is_only_to_be_read(api: Api) -> None:
    assert (await api.post("/")).status_code == 405
    assert (await api.post("/static/app.js")).status_code == 405


def test_no_file_names_an_address_outside() -> None:
    for name, file in OURS.items():
        found = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`]*", file.content.decode())
        assert [one for one in found if not one.startswith(NAMESPACE)] == [], name


def test_no_vendored_module_fetches_or_imports_by_address() -> None:
    for name, file in FILES.items():
        if name.startswith("vendor/") and name.endswith((".js", ".css")):
            text = file.content.decode()
            assert "fetch(" not in text, name
            assert "XMLHttpRequest" not in text, name
            assert "url(http" not in text, name
            assert re.findall(r"""(?:from|import)\s*["']https?:""", text) == [], name


def test_nothing_is_ever_painted_as_markup() -> None:
    for name, file in OURS.items():
        if name.endswith(".js"):
            text = file.content.decode()
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "dangerously", "eval("):
                assert word not in text, (name, word)


def test_every_vendored_module_has_its_licence_beside_it() -> None:
    listed = FILES["vendor/README.md"].content.decode()

    for name in FILES:
        if name.startswith("vendor/") and name.endswith((".js", ".css")):
            stem = name.removeprefix("vendor/").split(".")[0].removesuffix("-hooks")
            licence = FILES[f"vendor/{stem}.LICENSE"].content.decode()
            assert "Copyright" in licence or "Apache License" in licence
            assert f"`{name.removeprefix('vendor/')}`" in listed
            assert f"`{stem}.LICENSE`" in listed


def test_every_import_finds_its_file() -> None:
    mapped = set(re.findall(r'"([\w@/-]+)": "\{static\}', FILES["index.html"].content.decode()))

    for name, file in OURS.items():
        if not name.endswith(".js"):
            continue
        for target in re.findall(r'(?:from|import) "([^"]+)"', file.content.decode()):
            if target.startswith("."):
                folder = name.rpartition("/")[0]
                parts = [*folder.split("/"), *target.split("/")] if folder else target.split("/")
                path: list[str] = []
                for part in parts:
                    if part == "..":
                        path.pop()
                    elif part != ".":
                        path.append(part)
                assert "/".join(path) in FILES, (name, target)
            else:
                assert target in mapped, (name, target)
