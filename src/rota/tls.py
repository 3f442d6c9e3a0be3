"""TLS contexts: one for a coordinator that serves, one for a program that calls a coordinator.

Both speak TLS 1.2 or newer. Clients trust the certificate authorities of the system, or only those
in the file that `ROTA_CA` or `verify` names. An error names the file and the setting to change.
"""

import os
import ssl
import warnings
from pathlib import Path

from rota.errors import Invalid

CA_VARIABLE = "ROTA_CA"
OLDEST = ssl.TLSVersion.TLSv1_2
PROTOCOLS = ["http/1.1"]  # offered to a client that asks for HTTP/2 first

_MISMATCH = "KEY_VALUES_MISMATCH"
_NOT_TLS = "WRONG_VERSION_NUMBER"
_WRONG_NAME = "mismatch, certificate is not valid for"

Verify = bool | str | os.PathLike[str]


def server_context(cert_file: str, key_file: str) -> ssl.SSLContext:
    """The context of a coordinator with this certificate (and its chain) and this private key."""
    _check_readable(cert_file, "tls_cert")
    _check_readable(key_file, "tls_key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = OLDEST
    # A client that asks for new keys over and over would cost the coordinator its processor.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(PROTOCOLS)

    def refuse_password() -> str:  # without it, OpenSSL asks on the terminal
        raise Invalid(
            f"tls_key: {key_file} is encrypted; decrypt it with `openssl pkey -in {key_file} "
            "-out FILE`, and protect FILE by its permissions",
            field="tls_key",
        )

    _check_certificates(cert_file, "tls_cert")
    try:
        context.load_cert_chain(cert_file, key_file, refuse_password)
    except ssl.SSLError as error:
        if error.reason == _MISMATCH:
            text = f"{key_file} is not the key of the first certificate in {cert_file}"
        elif not error.reason:
            text = f"{key_file} has no private key in PEM form"
        else:
            text = f"{key_file} and {cert_file} cannot be used: {error.reason}"
        raise Invalid(f"tls_key: {text}", field="tls_key") from error
    return context


def client_context(verify: Verify = True) -> ssl.SSLContext:  # noqa: FBT002 - as in other HTTP clients
    """The context of a program that calls coordinators.

    With True, the coordinator's certificate must be signed by an authority in the file `ROTA_CA`
    names, or by one of the system's if it names none. A path names such a file. False accepts
    every certificate, with a warning: any server that answers then gets the token.
    """
    if verify is True:
        verify = os.environ.get(CA_VARIABLE) or True
    if isinstance(verify, bool):
        context = ssl.create_default_context()
        if not verify:
            warnings.warn(
                "verify=False: the coordinator's certificate is not checked, and any machine on "
                "the way can read the token and change what is sent; give the CA's file instead",
                stacklevel=2,
            )
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    else:
        context = _trusting(os.fspath(verify))
    context.minimum_version = OLDEST
    return context


def _trusting(ca_file: str) -> ssl.SSLContext:
    """A context that trusts the certificates of a file and no others."""
    name = f"{CA_VARIABLE} or verify"
    _check_readable(ca_file, name)
    _check_certificates(ca_file, name)
    context = ssl.create_default_context(cafile=ca_file)
    # A coordinator's own certificate may be given instead of that of its authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def reason_of(error: object) -> str:
    """What to tell a person about a connection that failed, with the setting to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        advice = (
            "call the coordinator by a name that its certificate has"
            if _WRONG_NAME in why
            else f"set {CA_VARIABLE} to the CA's file"
        )
        return f"certificate verify failed: {why}; {advice}"
    if isinstance(error, ssl.SSLError) and error.reason == _NOT_TLS:
        return (
            "what answers there does not speak TLS; use http://, or start the coordinator with "
            "--tls-cert and --tls-key"
        )
    return str(error)


def check_authorities(ca_file: str, setting: str) -> None:
    """Refuse a file that cannot be read, or that has no certificate."""
    _check_readable(ca_file, setting)
    _check_certificates(ca_file, setting)


def _check_readable(file: str, setting: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        text = f"{setting}: {file} cannot be read: {error.strerror}"
        raise Invalid(text, field=setting) from error


def _check_certificates(file: str, setting: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError as error:
        text = f"{setting}: {file} has no certificate in PEM form"
        raise Invalid(text, field=setting) from error
