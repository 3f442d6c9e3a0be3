"""A coordinator behind nginx and behind Caddy, with the files of deploy/.

They run where they are installed. The names, ports and certificates of the files are replaced, and
nothing else.
"""

import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rota import Rota
from tests.certificates import Authority, Certificate
from tests.cli.processes import TIMEOUT_S, coordinator, running

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
HERE = "127.0.0.1:7070"  # where the files have a coordinator
POLL_S = 0.05
NGINX_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
Proxy = Callable[[Path, Certificate, str, int], list[str]]


def tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed: its file was not tried")
    return found


def nginx(folder: Path, certificate: Certificate, at: str, port: int) -> list[str]:
    text = (DEPLOY / "nginx" / "rota.conf").read_text(encoding="utf-8")
    assert HERE in text
    for before, after in (
        ("/etc/nginx/rota.crt", certificate.cert),
        ("/etc/nginx/rota.key", certificate.key),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        (HERE, at),
    ):
        text = text.replace(before, after)
    (folder / "rota.conf").write_text(text, encoding="utf-8")
    folders = "".join(f"{name}_temp_path {folder}/{name};\n" for name in NGINX_FOLDERS)
    (folder / "nginx.conf").write_text(
        f"pid {folder}/nginx.pid;\nerror_log {folder}/error.log;\ndaemon off;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{folders}include {folder}/rota.conf;\n}}\n",
        encoding="utf-8",
    )
    return [tool("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, certificate: Certificate, at: str, port: int) -> list[str]:
    text = (DEPLOY / "caddy" / "Caddyfile").read_text(encoding="utf-8")
    assert HERE in text
    site = f"https://localhost:{port} {{\n\ttls {certificate.cert} {certificate.key}"
    text = text.replace("rota.example {", site).replace(HERE, at)
    # No port beside that of the site, and no wait for open streams at the end.
    options = ("admin off", "auto_https disable_redirects", "grace_period 1s")
    text = f"{{\n{chr(10).join(options)}\n}}\n{text}"
    (folder / "Caddyfile").write_text(text, encoding="utf-8")
    file = str(folder / "Caddyfile")
    return [tool("caddy"), "run", "--adapter", "caddyfile", "--config", file]


@contextmanager
def serving(command: list[str], folder: Path, port: int) -> Iterator[None]:
    log = folder / "proxy.log"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, env=os.environ | {"HOME": str(folder)}, stdout=file, stderr=file
        )
    try:
        until = time.monotonic() + TIMEOUT_S
        while process.poll() is None and time.monotonic() < until:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(POLL_S)
        assert process.poll() is None, log.read_text(encoding="utf-8")
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "proxy"), [("nginx", nginx), ("Caddy", caddy)])
def test_tasks_and_streams_pass_a_proxy(
    name: str, proxy: Proxy, tmp_path: Path, authority: Authority, certificate: Certificate
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    url = f"https://localhost:{port}"
    request = urllib.request.Request(f"{url}/api/events", headers={"Accept": "text/event-stream"})
    trusting = ssl.create_default_context(cafile=authority.ca)
    # Over a WebSocket alone: a worker that may poll would hide a proxy that does not pass it on.
    flags = ("--url", url, "--ca", authority.ca, "--transport", "websocket")

    with (
        coordinator(tmp_path) as (_, behind),
        serving(proxy(tmp_path, certificate, behind.removeprefix("http://"), port), tmp_path, port),
        running("worker", "examples.app:app", *flags, folder=ROOT),
        Rota(url, verify=authority.ca) as app,
        urllib.request.urlopen(request, context=trusting, timeout=TIMEOUT_S) as events,
    ):
        answer = app.enqueue("quick", {"name": name}).result(timeout=TIMEOUT_S)
        heard = next(line for line in events if b"task-succeeded" in line)

    assert answer == f"Hello, {name}!"
    assert heard
