"""Contexts of TLS: what is refused says which file is wrong, and what to do."""

import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from rota.errors import Invalid
from rota.tls import client_context, reason_of, server_context
from tests.certificates import Authority, Certificate, encrypted_copy
from tests.docs.pages import blocks

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "serve-over-tls.md"


def test_both_contexts_speak_tls_1_2_or_newer(
    authority: Authority, certificate: Certificate
) -> None:
    contexts = [server_context(*certificate), client_context(), client_context(authority.ca)]

    assert {context.minimum_version for context in contexts} == {ssl.TLSVersion.TLSv1_2}


def test_a_client_checks_certificates_and_names_unless_told_otherwise(authority: Authority) -> None:
    for context in (client_context(), client_context(authority.ca)):
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_file_that_is_missing_is_named_with_its_setting(
    tmp_path: Path, certificate: Certificate
) -> None:
    missing = str(tmp_path / "none.pem")

    with pytest.raises(Invalid, match=r"^tls_cert: .*none\.pem cannot be read: No such file"):
        server_context(missing, certificate.key)
    with pytest.raises(Invalid, match=r"^tls_key: .*none\.pem cannot be read: No such file"):
        server_context(certificate.cert, missing)
    with pytest.raises(Invalid, match=r"^ROTA_CA or verify: .*none\.pem cannot be read"):
        client_context(missing)


def test_a_file_without_what_it_should_have_is_named(
    tmp_path: Path, certificate: Certificate
) -> None:
    with pytest.raises(Invalid, match=r"^tls_cert: .* has no certificate in PEM form"):
        server_context(certificate.key, certificate.key)
    with pytest.raises(Invalid, match=r"^tls_key: .* has no private key in PEM form"):
        server_context(certificate.cert, certificate.cert)
    with pytest.raises(Invalid, match=r"^tls_cert: .* cannot be read: Is a directory"):
        server_context(str(tmp_path), certificate.key)
    with pytest.raises(Invalid, match=r"^ROTA_CA or verify: .* has no certificate in PEM form"):
        client_context(certificate.key)


def test_a_key_of_another_certificate_is_refused(
    authority: Authority, certificate: Certificate
) -> None:
    other = authority.issue("other")

    with pytest.raises(Invalid, match=r"^tls_key: .*other\.key is not the key of the first"):
        server_context(certificate.cert, other.key)


def test_an_encrypted_key_is_refused_and_no_password_is_asked_for(
    tmp_path: Path, certificate: Certificate
) -> None:
    key = encrypted_copy(certificate.key, tmp_path / "locked.key")

    with pytest.raises(Invalid, match=r"locked\.key is encrypted; decrypt it with `openssl pkey"):
        server_context(certificate.cert, key)


def test_the_variable_names_the_authorities_of_clients(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_CA", authority.ca)

    (trusted,) = client_context().get_ca_certs()

    assert trusted["subject"] == ((("commonName", "Test CA"),),)


def test_a_client_that_checks_nothing_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="the coordinator's certificate is not checked"):
        context = client_context(verify=False)

    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_a_failure_without_tls_in_it_is_told_as_it_is() -> None:
    assert reason_of(ConnectionRefusedError(111, "Connection refused")) == (
        "[Errno 111] Connection refused"
    )


def test_the_certificate_of_the_page_on_tls_is_trusted_by_its_authority(tmp_path: Path) -> None:
    recipe = blocks(PAGE, "bash")[0].text
    made = subprocess.run(["bash", "-ec", recipe], cwd=tmp_path, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    server = server_context(str(tmp_path / "rota.pem"), str(tmp_path / "rota.key"))
    client = client_context(tmp_path / "ca.pem")

    for name in ("rota.example", "10.0.0.5"):
        assert shaken_hands(client, server, name)


def shaken_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> str | None:
    """Do a handshake in memory; the version of TLS that both have agreed on."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    ]
    for end in (*ends, *ends):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return ends[0].version()
