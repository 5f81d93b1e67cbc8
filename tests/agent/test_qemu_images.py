"""Images of virtual machines on a machine without a Docker Engine: fetched from a registry, and made file systems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backendai.agent.backends.base import BackendError, ImageNotFound
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.qemu.images import QemuImages, draft_folder
from backendai.agent.backends.qemu.tools import QemuTools
from backendai.base.wire.images import RegistryAccess
from tests.agent.qemu_bed import machine_settings
from tests.agent.registry_images import add_image
from tests.catalog.fake_registry import ACCOUNT, FakeRegistry, serving

pytestmark = pytest.mark.qemu


@pytest.fixture
def tools(tmp_path: Path) -> QemuTools:
    tools = QemuTools(machine_settings(tmp_path).root)
    if tools.find("skopeo") is None:
        pytest.skip("skopeo is not installed: bin/qemu-bed build fetches it")
    return tools


@pytest.fixture
def images(tools: QemuTools, tmp_path: Path) -> QemuImages:
    return QemuImages(Engine(f"unix://{tmp_path}/nowhere.sock", "test", "n1"), tools, tmp_path)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as registry:
        registry.wants_token = True
        yield registry


def test_an_image_is_fetched_with_the_account_that_is_given_and_with_no_other(
    images: QemuImages, registry: FakeRegistry, tools: QemuTools
) -> None:
    digest = add_image(registry, "1", "first")
    reference = f"{registry.address}/pin@{digest}"
    for access in (RegistryAccess(), RegistryAccess(username=ACCOUNT[0], password="wrong")):
        with pytest.raises(BackendError) as refused:
            images.pull(reference, timeout=60, progress=lambda _: None, access=access)
        assert refused.value.code == "registry-denied"
    assert not images.has(reference)
    shares: list[float | None] = []
    account = RegistryAccess(username=ACCOUNT[0], password=ACCOUNT[1])
    images.pull(reference, timeout=60, progress=lambda one: shares.append(one.share), access=account)
    assert shares[-1] == 1.0
    assert images.has(reference)
    (seen,) = images.sightings()
    assert (seen.reference, seen.digest, seen.architecture) == (reference, digest, "amd64")
    made = images.make(reference)
    assert made.environ == {"PATH": "/bin", "VERSION": "first"}
    listed = subprocess.run(
        [tools.need("unsquashfs"), "-lln", made.file], capture_output=True, text=True, env=tools.environ(), check=True
    ).stdout
    assert any("1000/1000" in line and line.endswith("/home/work") for line in listed.splitlines()), "owners are kept"
    assert [path.name for path in made.file.parent.iterdir() if path.name.startswith(".")] == []


def test_an_image_that_the_registry_lacks_is_not_found(images: QemuImages, registry: FakeRegistry) -> None:
    account = RegistryAccess(username=ACCOUNT[0], password=ACCOUNT[1])
    with pytest.raises(ImageNotFound):
        images.pull(f"{registry.address}/pin:none", timeout=60, progress=lambda _: None, access=account)
    with pytest.raises(ImageNotFound):
        images.make(f"{registry.address}/pin:none")


def test_a_cache_that_takes_no_files_is_a_reason(images: QemuImages, tmp_path: Path) -> None:
    (tmp_path / "images").touch()  # no folder can be made there, as on a full disk
    with pytest.raises(BackendError, match=r"cannot be made: .* File exists"):
        images.pull("127.0.0.1:9/pin:1", timeout=60, progress=lambda _: None)


def test_a_file_system_goes_when_nothing_was_started_with_it_for_a_week(images: QemuImages, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, days in (("old", 8), ("new", 6)):
        (folder / f"{name}.squashfs").touch()
        os.utime(folder / f"{name}.squashfs", times=(0, time.time() - days * 86400))
    (folder / "references.json").write_text(json.dumps({"a": "old", "b": "new"}))
    images.sweep()
    assert [path.name for path in folder.glob("*.squashfs")] == ["new.squashfs"]
    assert (images.has("a"), images.has("b")) == (False, True)


def test_what_a_killed_agent_left_goes_and_what_another_is_at_stays(images: QemuImages, tmp_path: Path) -> None:
    folder, long_ago = tmp_path / "images", (0, time.time() - 3600)
    code = "import os, sys; from pathlib import Path; from backendai.agent.backends.qemu.images import draft_folder\n"
    code += "with draft_folder(Path(sys.argv[1])) as made: (made / 'image.tar').touch(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, folder], cwd=Path(__file__).parents[2], check=False)
    (left,) = folder.iterdir()
    with draft_folder(folder) as busy:
        images.sweep()
        assert left.exists(), "its agent may be about to lock it"
        for one in (left, busy):
            os.utime(one, times=long_ago)
        images.sweep()
        assert list(folder.iterdir()) == [busy]
    assert list(folder.iterdir()) == []
