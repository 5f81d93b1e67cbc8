"""The images themselves: what their labels promise, and that a kernel's user can work in them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.images.own_packages import Run, check_cells, check_environments, check_pip, run_notebook

ROOT = Path(__file__).resolve().parents[2]
LABEL = re.compile(r'(ai\.backend\.[\w.-]+)="?([^"\s]+(?: [^"]+)?)"?')
FOLDERS = ("base", "python", "python-science", "serve")
LOCKED_DOWN = ("--init", "--user", "1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


def read_labels(name: str) -> dict[str, str]:
    return dict(LABEL.findall((ROOT / "images" / name / "Dockerfile").read_text()))


@pytest.mark.parametrize("name", FOLDERS)
def test_it_explains_every_label_in_the_documentation(name: str) -> None:
    text = (ROOT / "docs" / "images.md").read_text()
    labels = read_labels(name)
    assert labels
    named = [re.sub(r"(ai\.backend\.app)\.\w+\.", r"\1.<service>.", label) for label in labels]
    assert [label for label in named if f"`{label}`" not in text] == []


def test_the_science_image_promises_what_the_image_does_and_pins_its_packages() -> None:
    python, science = read_labels("python"), read_labels("python-science")
    services = "ai.backend.service-ports"
    assert science.pop(services).startswith(python.pop(services))
    assert python.items() <= science.items()
    requirements = (ROOT / "images" / "python-science" / "requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in requirements if not line.startswith("#"))
    assert {"numpy", "pandas", "scipy", "scikit-learn", "matplotlib", "ipywidgets"} <= pins.keys()


def test_it_defines_every_service_that_the_image_offers() -> None:
    ports = re.findall(r"(\w+):http:\[(\d+)\]", read_labels("python")["ai.backend.service-ports"])
    folder = ROOT / "images" / "python" / "service-defs"
    assert {name for name, _ in ports} == {path.stem for path in folder.glob("*.json")}
    assert len({port for _, port in ports}) == len(ports)
    for name, _ in ports:
        definition = json.loads((folder / f"{name}.json").read_text())
        assert any("{ports[0]}" in word for word in definition["command"])
        assert definition["url_template"].startswith("/")


def test_no_app_of_an_image_leaves_the_folder_in_which_the_session_starts() -> None:
    found = list((ROOT / "images").glob("*/service-defs/*.json"))
    assert len(found) >= 5
    for path in found:
        assert "/home/work" not in path.read_text() and "_dir" not in path.read_text(), path
    for name in FOLDERS:
        assert not [text for label, text in read_labels(name).items() if "/home/work" in text], name


@pytest.mark.parametrize(
    ("start", "root"), [("home", "home"), ("home/kept/part", "home"), ("data", "/"), ("home/link", "home")]
)
def test_jupyter_makes_notebooks_where_the_session_starts_and_goes_up_to_the_home(
    tmp_path: Path, start: str, root: str
) -> None:
    for name in ("home/kept/part", "data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/link").symlink_to(tmp_path / "data")  # as without a sandbox
    given = "class Any:\n    def __getattr__(self, name): self.__dict__[name] = Any(); return self.__dict__[name]\n"
    show = "print(get_config().ServerApp.root_dir, get_config().ServerApp.preferred_dir)"
    config = (ROOT / "images" / "python" / "jupyter_server_config.py").read_text().replace("import Any", "import Text")
    program = f"{given}known = Any()\ndef get_config(): return known\n{config}\n{show}"
    environ = {"HOME": str(tmp_path / "home"), "PWD": str(tmp_path / start)}
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, cwd=tmp_path / start, env=environ, check=True, capture_output=True, text=True)
    assert output.stdout.split() == [root if root == "/" else str(tmp_path / root), str(tmp_path / start)]


@pytest.fixture(scope="module")
def built() -> None:
    subprocess.run([ROOT / "bin" / "build-images"], check=True)


@pytest.fixture(scope="module", params=["python", "python-science"])
def image(built: None, request: pytest.FixtureRequest) -> str:
    return f"local/backendai-{request.param}:latest"


@pytest.fixture
def kernel(image: str, tmp_path: Path) -> Iterator[str]:
    """A container as an agent makes it: an unprivileged user with an empty home folder."""
    tmp_path.chmod(0o777)
    options = [*LOCKED_DOWN, "--hostname", "main1", "--env", "BACKENDAI_SESSION_NAME=demo", "--network", "none"]
    command = ["docker", "run", "--detach", *options, "--volume", f"{tmp_path}:/home/work", image]
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
    _output(*execute, "tmux", "new-session", "-d", "-s", "main")
    assert _output(*execute, "tmux", "show-options", "-gv", "history-limit") == "50000"
    assert "0% packet loss" in _output(*execute, "ping", "-c", "1", "127.0.0.1")


@pytest.mark.docker
@pytest.mark.long
def test_jupyterlab_makes_no_parser_that_it_does_not_use(kernel: str) -> None:
    code = "import sys, jupyterlab.labapp; print('jsonschema' in sys.modules, 'lark' in sys.modules)"
    run = partial(_output, "docker", "exec", kernel, "/opt/kernel/bin/python")
    assert run("-c", code).split() == ["True", "False"], "two thirds of its start"
    assert "No broken requirements" in run("-m", "pip", "check")


@pytest.mark.docker
@pytest.mark.long
def test_pip_keeps_packages_where_an_image_of_the_session_has_them(kernel: str, tmp_path: Path) -> None:
    check_pip(_in(kernel), tmp_path)


@pytest.mark.docker
@pytest.mark.long
def test_environments_that_people_make_stay_their_own(kernel: str, tmp_path: Path) -> None:
    check_environments(_in(kernel), tmp_path)


@pytest.mark.docker
@pytest.mark.long
def test_a_cell_imports_what_the_one_before_installed(kernel: str, tmp_path: Path) -> None:
    check_cells(_in(kernel), tmp_path)


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.parametrize("image", ["python-science"], indirect=True)
def test_the_science_image_calculates_draws_and_compiles(kernel: str, tmp_path: Path) -> None:
    cells = [
        "import numpy as np, pandas as pd, scipy.linalg, ipywidgets\n"
        "print(pd.DataFrame(scipy.linalg.inv(np.eye(2) * 2)).sum().sum())",
        "from sklearn.linear_model import LinearRegression\n"
        "print(round(LinearRegression().fit([[0], [1], [2]], [1, 3, 5]).coef_[0], 3))",
        "%matplotlib inline\nimport warnings, matplotlib.pyplot as plt\nwarnings.simplefilter('error')\n"
        "plt.title('\ud55c\uae00'); plt.plot([1, -2]); plt.show()",
    ]
    assert run_notebook(_in(kernel), tmp_path, cells) == ["1.0\n", "2.0\n", "image/png"]
    (tmp_path / "found.c").write_text(
        '#include <Python.h>\nstatic struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "found", 0, -1};\n'
        "PyMODINIT_FUNC PyInit_found(void) { return PyModule_Create(&module); }\n"
    )
    run = partial(_output, "docker", "exec", kernel, "sh", "-c")
    run("gcc -shared -fPIC $(python3-config --includes) found.c -o found.so && python -c 'import found'")
    run("command -v vim htop wget rsync make g++")


@pytest.mark.docker
@pytest.mark.long
def test_jupyters_pages_are_named_after_the_session(kernel: str) -> None:
    serve = "exec jupyter-lab --no-browser --ServerApp.port=8888 --IdentityProvider.token= >lab.log 2>&1"
    subprocess.run(["docker", "exec", "--detach", kernel, "sh", "-c", serve], check=True)
    fetch = "for try in $(seq 60); do curl -sf localhost:8888/lab && break; sleep 0.5; done"
    assert '"appName": "demo"' in _output("docker", "exec", kernel, "sh", "-c", fetch)


@pytest.mark.docker
@pytest.mark.long
def test_it_holds_no_file_that_raises_privileges(image: str) -> None:
    search = "find / -xdev -type f -perm /6000; python3 -c '" + (
        "import os\n"
        'for folder, _, names in os.walk("/usr"):\n'
        "    for name in names:\n"
        "        path = os.path.join(folder, name)\n"
        '        if os.path.isfile(path) and "security.capability" in os.listxattr(path): print(path)\''
    )
    assert _output("docker", "run", "--rm", "--user", "0", image, "sh", "-c", search) == ""


@pytest.mark.docker
@pytest.mark.long
def test_it_keeps_package_settings_of_the_building_machine_out_of_the_image(image: str) -> None:
    history = _output("docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", image)
    assert not re.search(r"https?://", history)
    look = "cat /etc/pip.conf /etc/apt/apt.conf.d/99site /run/secrets/ca /var/lib/apt/lists/*_* 2>/dev/null; true"
    assert _output("docker", "run", "--rm", "--user", "0", image, "sh", "-c", look) == ""


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


def _in(kernel: str) -> Run:
    return partial(_output, "docker", "exec", kernel)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.strip()
