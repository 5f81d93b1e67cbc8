"""Fixtures: a storage host with its file server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backendai.domain.storage.models import StorageHost
from tests.storage.fake_file_server import FakeFileServer, make_host, serving


@pytest.fixture
def files() -> Iterator[FakeFileServer]:
    """A file server that does as it is told."""
    with serving(FakeFileServer()) as server:
        yield server


@pytest.fixture
def host(db: None, files: FakeFileServer) -> StorageHost:
    """The default storage host."""
    return make_host(files)
