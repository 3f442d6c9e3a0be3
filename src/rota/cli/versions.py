"""The versions of Rota and of what it stands on, for bug reports and checks of a deployment."""

import platform
from importlib import import_module, metadata
from typing import Any, NamedTuple

import rota


class Library(NamedTuple):
    """A library in C that a Python package brings along, and the call that names its version."""

    name: str
    package: str
    call: str


LIBRARIES = (
    Library("sqlite", "apsw", "sqlite_lib_version"),
    Library("zeromq", "zmq", "zmq_version"),
    Library("libpq", "psycopg.pq", "version"),
)


def versions() -> dict[str, Any]:
    """What `rota --version --json` prints. A library or package that is not installed is null."""
    return {
        "rota": rota.__version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        **{library.name: _library_version(library) for library in LIBRARIES},
        "packages": {name: _package_version(name) for name in _required_packages()},
    }


def _library_version(library: Library) -> str | None:
    try:
        module = import_module(library.package)
    except ImportError:
        return None
    return str(getattr(module, library.call)())


def _required_packages() -> list[str]:
    """The packages that Rota requires, those of its extras included, without the tools of dev."""
    try:
        requirements = metadata.requires("rota") or []
    except metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return []
    used = (one for one in requirements if "extra == 'dev'" not in one)
    return sorted({_name_of(one) for one in used})


def _name_of(requirement: str) -> str:
    for index, character in enumerate(requirement):
        if not (character.isalnum() or character in "-_."):
            return requirement[:index]
    return requirement


def _package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
