"""Packages for Node.js, installed once beside the Python ones, for tests with clients of others."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# ZeroMQ for Node, which brings its library along for the usual platforms, and what takes the types
# out of TypeScript. Nothing of theirs is built or run while they are installed.
PACKAGES = ("zeromq@6.8.0", "amaro@1.2.1")
INSTALL_TIMEOUT_S = 100


def installed() -> Path:
    """The folder that has the packages in it; skips the test where there is no way to get them."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    name = "node-" + "-".join(PACKAGES).replace("@", "-")
    folder = Path(sys.prefix) / name
    if not folder.is_dir():
        _install(folder)
    return folder


def _install(folder: Path) -> None:
    """Whole or not at all: several tests may do this at once."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as temporary:
        command = ["npm", "install", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund"]
        ended = subprocess.run(
            [*command, "--prefix", temporary, *PACKAGES],
            cwd=temporary,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_TIMEOUT_S,
        )
        if ended.returncode != 0:
            pytest.skip(f"npm cannot install {', '.join(PACKAGES)}: {ended.stderr[-500:]}")
        packages = Path(temporary) / "whole"
        packages.mkdir()
        (Path(temporary) / "node_modules").rename(packages / "node_modules")
        try:
            packages.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another was faster
                raise
