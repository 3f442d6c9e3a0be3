"""Is there a browser for the tests of the dashboard? If not, and it can be had, get Debian's.

Without one those tests are left out and say so, so nothing here fails.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
LIMIT_S = 600


def main() -> None:
    if any(shutil.which(name) for name in NAMES):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        sys.stderr.write("no Chromium here: the tests of the dashboard's pages are left out\n")
        return
    sys.stderr.write("installing Debian's Chromium for the tests of the dashboard ...\n")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "chromium"],
    ):
        done = subprocess.run(
            command, check=False, env=environment, timeout=LIMIT_S, stdout=subprocess.DEVNULL
        )
        if done.returncode:
            sys.stderr.write(f"{' '.join(command)} failed; those tests are left out\n")
            return


if __name__ == "__main__":
    main()
