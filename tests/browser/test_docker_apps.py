"""The apps of the platform's own image, in containers: notebooks, TensorBoard, and the console beside them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.browser.chromium import Chromium
from tests.browser.notebooks import plot_and_save, run_code, see_a_run_in_tensorboard
from tests.browser.people import ADMIN
from tests.browser.visitor import Visitor, run_on
from tests.patience import until
from tests.system.client import Body, Client
from tests.system.platform import ROOT, Platform

pytestmark = [pytest.mark.browser, pytest.mark.docker, pytest.mark.system, pytest.mark.long]
_PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]);"


@pytest.fixture(scope="module")
def science(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform with the image that people start from."""
    subprocess.run([ROOT / "bin" / "build-images", "--only", "python-science"], check=True)
    with Platform(tmp_path_factory.mktemp("science")) as platform:
        yield platform


@pytest.fixture(scope="module")
def owner(science: Platform) -> Client:
    run_on(science, "make_administrator")
    return Client(science.url, science.manage("create_token", ADMIN).stdout.split()[-1])


@pytest.fixture(scope="module")
def session(owner: Client) -> Iterator[Body]:
    launch = {"image": "python-science", "resources": {"cpu": "2", "mem": "1500m"}}
    session = owner.wait_until_running(owner.launch("apps", **launch)["id"])
    yield session
    owner.end(session["id"])


@pytest.mark.parametrize("service", ["jupyterlab", "jupyter"])
def test_a_notebook_is_saved_and_the_console_sees_it(
    science: Platform, chromium: Chromium, owner: Client, session: Body, service: str
) -> None:
    visitor = Visitor(chromium, science.url).sign_in(ADMIN)
    visitor.go(f"/sessions/{session['id']}/apps/{service}/")
    plot_and_save(visitor.page, service)
    path = f"sessions/{session['id']}/files/Untitled.ipynb"
    until(lambda: "image/png" in owner._send("GET", path).text, 20.0, "the notebook is saved")
    seen = run_code(owner, session, "import json; print(json.load(open('Untitled.ipynb'))['nbformat'])")
    assert "4" in json.dumps(seen["items"])
    run_code(owner, session, "rm Untitled.ipynb", mode="batch")
    visitor.page.context.close()


def test_tensorboard_shows_an_event_file_where_its_argument_says(
    science: Platform, chromium: Chromium, owner: Client, session: Body
) -> None:
    visitor = Visitor(chromium, science.url).sign_in(ADMIN)
    see_a_run_in_tensorboard(visitor, owner, session)


def test_the_console_plots_and_runs_shell_commands(owner: Client, session: Body) -> None:
    kinds = {kind for item in run_code(owner, session, _PLOT)["items"] for kind in json.dumps(item).split('"')}
    assert "image/png" in kinds
    assert "/opt/own/bin/python" in json.dumps(run_code(owner, session, "command -v python", mode="batch")["items"])


def test_the_originals_call_runs_code_in_the_images_own_jupyter_kernel(owner: Client, session: Body) -> None:
    def execute(mode: str, code: str = "", run_id: str = "") -> Body:
        body = {"mode": mode, "code": code, **({"runId": run_id} if run_id else {})}
        return dict(owner._send("POST", f"sessions/{session['id']}/execute/", json=body).json()["result"])

    def ended(told: Body) -> tuple[Body, str]:
        text = json.dumps(told["console"])
        while told["status"] == "continued":
            told = execute("continue", run_id=told["runId"])
            text += json.dumps(told["console"])
        return told, text

    told, text = ended(execute("query", "get_ipython().__class__.__name__, 6*7"))
    assert (told["status"], told["exitCode"]) == ("finished", 0)
    assert "ZMQInteractiveShell" in text and "42" in text
    told, _ = ended(execute("query", "raise SystemExit(3)"))
    assert (told["status"], told["exitCode"]) == ("finished", 3)
    asks, _ = ended(execute("query", "print('hello', input('Your name? '))"))
    assert (asks["status"], asks["options"]["prompt"]) == ("waiting-input", "Your name? ")
    told, text = ended(execute("input", "Bo", asks["runId"]))
    assert told["status"] == "finished" and "hello Bo" in text
    slow = execute("query", "import time; time.sleep(600)")
    assert slow["status"] == "continued"
    told, text = ended(execute("interrupt", run_id=slow["runId"]))
    assert told["status"] == "finished" and "KeyboardInterrupt" in text
    until(lambda: "bit_count" in json.dumps(execute("complete", "(7).bit_c")["completions"]), what="it completes names")
    told, text = ended(execute("query", _PLOT))
    assert told["exitCode"] == 0 and '"png"' in text
