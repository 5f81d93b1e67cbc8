"""The images themselves: what their labels promise, and that a kernel's user can work in them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LABEL = re.compile(r'(ai\.backend\.[\w.-]+)="?([^"\s]+(?: [^"]+)?)"?')
FOLDERS = ("base", "python")
LOCKED_DOWN = ("--init", "--user", "1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


def read_labels(name: str) -> dict[str, str]:
    return dict(LABEL.findall((ROOT / "images" / name / "Dockerfile").read_text()))


@pytest.mark.parametrize("name", FOLDERS)
def test_it_explains_every_label_in_the_documentation(name: str) -> None:
    text = (ROOT / "docs" / "images.md").read_text()
    labels = read_labels(name)
    assert labels
    assert [label for label in labels if f"`{label}`" not in text] == []


def test_it_defines_every_service_that_the_python_image_offers() -> None:
    ports = re.findall(r"(\w+):http:\[(\d+)\]", read_labels("python")["ai.backend.service-ports"])
    folder = ROOT / "images" / "python" / "service-defs"
    assert {name for name, _ in ports} == {path.stem for path in folder.glob("*.json")}
    assert len({port for _, port in ports}) == len(ports)
    for name, _ in ports:
        definition = json.loads((folder / f"{name}.json").read_text())
        assert any("{ports[0]}" in word for word in definition["command"])
        assert definition["url_template"].startswith("/")


@pytest.fixture(scope="module")
def python_image() -> str:
    subprocess.run([ROOT / "bin" / "build-images"], check=True)
    return "local/backendai-python:latest"


@pytest.fixture
def kernel(python_image: str, tmp_path: Path) -> Iterator[str]:
    """A container as an agent makes it: an unprivileged user with an empty home folder."""
    tmp_path.chmod(0o777)
    options = [*LOCKED_DOWN, "--hostname", "main1", "--env", "BACKENDAI_SESSION_NAME=demo"]
    command = ["docker", "run", "--detach", *options, "--volume", f"{tmp_path}:/home/work", python_image]
    container = _output(*command, "sleep", "infinity")
    yield container
    subprocess.run(["docker", "rm", "--force", "--volumes", container], check=True, capture_output=True)


@pytest.mark.docker
@pytest.mark.long
def test_it_runs_jupyter_and_a_shell_for_an_unprivileged_user(kernel: str) -> None:
    execute = ("docker", "exec", kernel)
    _output(*execute, "python", "-c", "import ipykernel, jupyterlab, notebook")
    prompt = _output(*execute, "bash", "-lic", "echo $PATH; echo ${PS1@P}").splitlines()
    assert prompt[0].startswith("/home/work/.local/bin:/opt/own/bin:/opt/kernel/bin:")
    assert prompt[1] == "work@main1[demo]:~$"
    find = "import sysconfig; print(sysconfig.get_path('purelib', vars={'base': '/opt/own'}))"
    own = _output(*execute, "python", "-c", find).strip()
    _output(*execute, "sh", "-c", f"mkdir -p {own} && echo 'found = 1' > {own}/mine.py")
    _output(*execute, "python", "-c", "import mine")
    _output(*execute, "tmux", "new-session", "-d", "-s", "main")
    assert _output(*execute, "tmux", "show-options", "-gv", "history-limit") == "50000"
    assert "0% packet loss" in _output(*execute, "ping", "-c", "1", "127.0.0.1")


@pytest.mark.docker
@pytest.mark.long
def test_it_holds_no_file_that_raises_privileges(python_image: str) -> None:
    search = "find / -xdev -type f -perm /6000; python3 -c '" + (
        "import os\n"
        'for folder, _, names in os.walk("/usr"):\n'
        "    for name in names:\n"
        "        path = os.path.join(folder, name)\n"
        '        if os.path.isfile(path) and "security.capability" in os.listxattr(path): print(path)\''
    )
    assert _output("docker", "run", "--rm", "--user", "0", python_image, "sh", "-c", search) == ""


@pytest.mark.docker
@pytest.mark.long
def test_it_keeps_package_settings_of_the_building_machine_out_of_the_image(python_image: str) -> None:
    history = _output("docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", python_image)
    assert not re.search(r"https?://", history)
    look = "cat /etc/pip.conf /etc/apt/apt.conf.d/99site /run/secrets/ca /var/lib/apt/lists/*_* 2>/dev/null; true"
    assert _output("docker", "run", "--rm", "--user", "0", python_image, "sh", "-c", look) == ""


@pytest.mark.docker
@pytest.mark.long
def test_it_makes_a_tiny_image_for_tests_without_any_network() -> None:
    tag = "local/backendai-tiny-test:latest"
    subprocess.run([ROOT / "images" / "tiny" / "build", tag], check=True, capture_output=True)
    try:
        image = json.loads(_output("docker", "image", "inspect", tag))[0]
        assert image["Size"] < 4_000_000
        assert image["Config"]["Labels"]["ai.backend.kernelspec"] == "1"
        assert _output("docker", "run", "--rm", *LOCKED_DOWN, tag, "id", "-un") == "work"
    finally:
        subprocess.run(["docker", "image", "rm", tag], check=True, capture_output=True)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.strip()
