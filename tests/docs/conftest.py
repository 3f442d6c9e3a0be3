from collections.abc import Iterator

import pytest

from tests.docs.commands.stage import Home, opened_home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """One coordinator for the commands of most of the pages."""
    with opened_home(tmp_path_factory.mktemp("home")) as opened:
        yield opened
