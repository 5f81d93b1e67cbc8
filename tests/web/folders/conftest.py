"""Alice's folder on a file server, and browsers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import Membership, User
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.services import create_folder
from tests.cast import Cast
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


@pytest.fixture
def data(cast: Cast, host: StorageHost) -> Folder:
    """Alice's folder."""
    return create_folder(cast.alice, name="data", host=host, now=timezone.now())


@pytest.fixture
def alice(cast: Cast, browse: Callable[[User], Client]) -> Client:
    """Alice's browser."""
    return browse(cast.alice)


@pytest.fixture
def bob(cast: Cast, browse: Callable[[User], Client]) -> Client:
    """Bob's browser."""
    return browse(cast.bob)


@pytest.fixture
def project_folder(cast: Cast, host: StorageHost) -> Folder:
    """A folder of the project, which Alice administers."""
    Membership.objects.filter(user=cast.alice).update(role="admin")
    return create_folder(cast.alice, name="ours", project=cast.project, host=host, now=timezone.now())
