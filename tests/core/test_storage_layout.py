"""The marker of a storage host: without it nothing is served or mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from backendai.base.paths.storage_layout import MARKER, Marker, StorageMissing, read_marker, write_marker

OURS = Marker("deployment", "local", 1000)


def test_a_marker_is_read_back_and_never_overwritten(tmp_path: Path) -> None:
    write_marker(tmp_path, OURS)
    assert read_marker(tmp_path, host="local", deployment="deployment") == OURS
    with pytest.raises(FileExistsError):
        write_marker(tmp_path, OURS)


def test_an_empty_mount_point_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StorageMissing, match="not mounted") as missing:
        read_marker(tmp_path, host="local")
    assert str(tmp_path) not in str(missing.value)


@pytest.mark.parametrize(("host", "deployment"), [("other", "deployment"), ("local", "another")])
def test_the_marker_of_another_host_or_deployment_is_refused(tmp_path: Path, host: str, deployment: str) -> None:
    write_marker(tmp_path, OURS)
    with pytest.raises(StorageMissing):
        read_marker(tmp_path, host=host, deployment=deployment)


@pytest.mark.parametrize("content", ["", "[]", '{"host": "local"}', "\0" * 9000])
def test_a_broken_marker_is_missing(tmp_path: Path, content: str) -> None:
    (tmp_path / MARKER).write_text(content)
    with pytest.raises(StorageMissing):
        read_marker(tmp_path, host="local")


def test_a_link_is_no_marker(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_marker(tmp_path / "elsewhere", OURS)
    (tmp_path / MARKER).symlink_to(tmp_path / "elsewhere" / MARKER)
    with pytest.raises(StorageMissing) as missing:
        read_marker(tmp_path, host="local")
    assert str(tmp_path) not in str(missing.value)
