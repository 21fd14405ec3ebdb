"""One release of fourteen columns, and its page, for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consilience.explore.server import Server
from consilience.release import Published
from explore.cases import release_of, served


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return release_of(tmp_path_factory.mktemp("explore"), 14, pairs=True)


@pytest.fixture(scope="session")
def server(published: Published) -> Iterator[Server]:
    with served(published) as found:
        yield found
