"""What people see of packages that they install in a session of the image ``python``. The home is ``/home/work``, and
needs no network: the packages are made here."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., str]  # runs a command in the home of a session and returns what it printed
WAITING = """
import time
for _ in range(600):
    try:
        import fresh
        break
    except ImportError:
        time.sleep(0.1)
open("/home/work/found", "w").write(fresh.VERSION)
"""
RUN_NOTEBOOK = """
import json, nbclient, nbformat.v4 as v4
notebook = v4.new_notebook(cells=[v4.new_code_cell(text) for text in json.load(open("cells.json"))])
nbclient.NotebookClient(notebook, timeout=600, startup_timeout=600, kernel_name="python3").execute()
said = [cell.outputs[-1] for cell in notebook.cells]
print(json.dumps([each.get("text") or ("image/png" in each["data"] and "image/png") for each in said]))
"""
PIP = ("--no-index", "--find-links", "/home/work")


def check_pip(run: Run, home: Path) -> None:
    """Packages are installed where an image that is made of the session has them."""
    for version in ("1.0", "2.0"):
        write_wheel(home, "fresh", version)
    write_wheel(home, "packaging", "99.0")  # the image has an older one
    (home / "waiting.py").write_text(WAITING)
    run("sh", "-c", "python waiting.py >/dev/null 2>&1 &")  # a program from before the packages came
    run("pip", "install", *PIP, "fresh==1.0")
    assert run("fresh-says") == "1.0 from /opt/own"
    run("timeout", "60", "sh", "-c", "until [ -s /home/work/found ]; do sleep 0.1; done")
    assert (home / "found").read_text() == "1.0"
    run("python", "-m", "pip", "install", *PIP, "--upgrade", "fresh", "packaging")
    assert run("bash", "-lc", "fresh-says") == "2.0 from /opt/own"
    assert "Location: /opt/own/lib" in run("pip", "show", "fresh")
    assert run("python", "-c", "import packaging; print(packaging.VERSION)") == "99.0"
    assert "99.0" not in run("/opt/kernel/bin/python", "-m", "pip", "list")  # what runs JupyterLab
    run("pip", "uninstall", "--yes", "fresh", "packaging")
    assert "fresh" not in run("pip", "list")
    run("python", "-c", "from packaging.version import Version")
    assert run("sh", "-c", "ls -A /home/work/.local 2>/dev/null; true") == ""


def check_environments(run: Run, home: Path) -> None:
    """Environments that people make, and their own folder, are apart from that."""
    write_wheel(home, "fresh", "1.0")
    run("python", "-m", "venv", "own")
    run("own/bin/pip", "install", *PIP, "fresh")
    assert run("own/bin/fresh-says") == "1.0 from /home/work/own"
    assert run("sh", "-c", "python -c 'import fresh' 2>/dev/null || echo none") == "none"
    assert "packaging" not in run("own/bin/pip", "list")
    run("pip", "install", "--user", *PIP, "fresh")
    assert run("fresh-says") == "1.0 from /home/work/.local"


def check_cells(run: Run, home: Path) -> None:
    """A cell of a notebook imports what the one before installed."""
    write_wheel(home, "fresh", "1.0")
    install = "%pip install --no-index --find-links /home/work fresh"
    cells = [f"import sys\n{install}", "import fresh; print(fresh.VERSION, sys.executable)", "!fresh-says"]
    assert run_notebook(run, home, cells)[1:] == ["1.0 /opt/own/bin/python\n", "1.0 from /opt/own\r\n"]


def run_notebook(run: Run, home: Path, cells: list[str]) -> list[str]:
    """Run cells as JupyterLab does, in its kernel; return what each wrote last: text, or the kind of a picture."""
    (home / "run.py").write_text(RUN_NOTEBOOK)
    (home / "cells.json").write_text(json.dumps(cells))
    output = run("/opt/kernel/bin/python", "run.py")
    return [str(text) for text in json.loads(output.splitlines()[-1])]


def write_wheel(folder: Path, name: str, version: str) -> None:
    """Write a package with one module and one program, that says its version and where it is."""
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"import sys\nVERSION = {version!r}\ndef say(): print(VERSION, 'from', sys.prefix"
        f" if sys.prefix in __file__ else __file__.partition('/lib/')[0])\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name}-says = {name}:say\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in (files | {f"{about}/RECORD": record}).items():
            wheel.writestr(path, text)
