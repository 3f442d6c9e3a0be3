"""A coordinator with TLS and the commands that call it, as real processes."""

import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rota.cli.render.output import ExitCode
from tests.certificates import Authority, Certificate
from tests.cli.processes import Running, coordinator, run, running

APP = """
from rota import Rota

app = Rota()


@app.task
def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(APP)
    return tmp_path


@pytest.fixture
def live(folder: Path, authority: Authority) -> Certificate:
    """The files that the coordinator reads."""
    certificate = Certificate(str(folder / "live.pem"), str(folder / "live.key"))
    replace(certificate, authority.issue("first"))
    return certificate


@pytest.fixture
def served(folder: Path, live: Certificate) -> Iterator[tuple[Running, str]]:
    flags = ("--tls-cert", live.cert, "--tls-key", live.key)
    with coordinator(folder, *flags) as (process, url):
        yield process, url


def replace(certificate: Certificate, by: Certificate) -> None:
    for target, source in zip(certificate, by, strict=True):
        Path(target).write_bytes(Path(source).read_bytes())


@pytest.mark.slow
def test_a_task_is_submitted_and_run_over_tls(
    folder: Path, served: tuple[Running, str], authority: Authority
) -> None:
    _, url = served
    worker = ("worker", "work:app", "--url", url, "--ca", authority.ca)
    submit = ("submit", "add", "--payload", '{"a": 1, "b": 2}', "--wait", "--url", url)
    with running(*worker, folder=folder) as process:
        process.wait_for(f"at {url}")

        by_flag = run(*submit, "--ca", authority.ca, folder=folder)
        by_variable = run(*submit, "--json", folder=folder, ROTA_CA=authority.ca)

    assert url.startswith("https://")
    assert (by_flag.returncode, by_variable.returncode) == (ExitCode.OK, ExitCode.OK)
    assert '"result":3' in by_variable.stdout.replace(" ", "")


def test_a_command_that_does_not_trust_the_coordinator_names_the_variable(
    folder: Path, served: tuple[Running, str]
) -> None:
    _, url = served

    refused = run("tasks", "ls", "--url", url, folder=folder)

    assert refused.returncode == ExitCode.UNUSABLE
    assert "certificate verify failed" in refused.stderr
    assert "set ROTA_CA to the CA's file" in refused.stderr


def test_a_hangup_replaces_the_certificate(
    served: tuple[Running, str], live: Certificate, authority: Authority
) -> None:
    process, url = served
    parts = urlsplit(url)
    second = authority.issue("second")
    replace(live, second)

    process.signal(signal.SIGHUP)
    process.wait_for("certificate_reloaded")
    shown = ssl.get_server_certificate((str(parts.hostname), int(parts.port or 0)))

    assert shown == ssl.DER_cert_to_PEM_cert(
        ssl.PEM_cert_to_DER_cert(Path(second.cert).read_text())
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--tls-cert", "live.pem"), "tls_key is missing"),
        (("--tls-key", "live.key"), "tls_cert is missing"),
        (("--tls-cert", "none.pem", "--tls-key", "live.key"), "none.pem cannot be read"),
        (("--tls-cert", "live.pem", "--tls-key", "live.pem"), "has no private key"),
    ],
    ids=["no key", "no certificate", "a missing file", "the wrong file"],
)
def test_a_certificate_that_cannot_be_served_with_is_refused_at_the_start(
    folder: Path, live: Certificate, flags: tuple[str, ...], said: str
) -> None:
    assert Path(live.cert).exists()

    refused = run("up", "--port", "0", *flags, folder=folder)

    assert refused.returncode == ExitCode.UNUSABLE
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
