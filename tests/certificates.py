"""Certificates for tests, made by the `openssl` command when they are first asked for."""

import subprocess
from pathlib import Path
from typing import NamedTuple

DAYS = "2"
PASSWORD = "secret"


class Certificate(NamedTuple):
    """The files of a certificate and its key."""

    cert: str
    key: str

    def settings(self) -> dict[str, str]:
        """The settings of a coordinator with this certificate."""
        return {"tls_cert": self.cert, "tls_key": self.key}


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.ca, self._key = str(folder / "ca.pem"), str(folder / "ca.key")
        openssl(
            *("req", "-x509", *NEW_KEY, "-keyout", self._key, "-out", self.ca, "-days", DAYS),
            *("-subj", "/CN=Test CA", "-addext", "keyUsage=critical,keyCertSign"),
        )

    def issue(self, name: str, *, hosts: str = "DNS:localhost,IP:127.0.0.1") -> Certificate:
        """A certificate for these hosts, in files of this name."""
        made = Certificate(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        openssl(
            *("req", "-x509", *NEW_KEY, "-keyout", made.key, "-out", made.cert, "-days", DAYS),
            *("-subj", f"/CN={name}", "-addext", f"subjectAltName={hosts}"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-CA", self.ca, "-CAkey", self._key),
        )
        return made


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def encrypted_copy(key: str, to: Path) -> str:
    """The same private key behind a password."""
    openssl("pkey", "-in", key, "-out", str(to), "-aes256", "-passout", f"pass:{PASSWORD}")
    return str(to)


def openssl(*arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
