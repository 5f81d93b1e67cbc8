"""What the package promises: it is small, begins fast, runs on old Pythons, and asks only for what is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from backendai.base.core.version import VERSION as PLATFORM_VERSION
from bai import VERSION, api
from bai.sdk.api import Route

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "cli" / "bai"
FILES = sorted(PACKAGE.rglob("*.py"))
COMMAND_TIME = 0.3  # seconds of processor
HEAVY = ("httpx", "websockets", "ssl", "asyncio", "django", "rich")
ROUTES = {name: route for name, route in vars(api).items() if isinstance(route, Route)}
_GAP = re.compile(r"{\w+}")


def bai(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys, atexit; {before}; from bai.__main__ import run; sys.exit(run({list(words)!r}))"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT / "cli", capture_output=True, text=True, check=False)


def test_its_version_is_the_platforms() -> None:
    assert VERSION == PLATFORM_VERSION


def test_help_loads_no_library_of_the_network() -> None:
    loaded = f"atexit.register(lambda: print('loaded', [one for one in {HEAVY!r} if one in sys.modules]))"
    said = bai("--help", before=loaded)
    assert said.returncode == 0 and "Exit codes" in said.stdout, said.stderr
    assert said.stdout.splitlines()[-1] == "loaded []"


def test_help_takes_less_than_three_tenths_of_a_second_of_the_processor() -> None:
    count = "import time; atexit.register(lambda: print('took', time.process_time()))"
    bai("--help")  # compiles it
    took = min(float(bai("--help", before=count).stdout.split()[-1]) for _ in range(5))
    assert took < COMMAND_TIME


def test_it_imports_nothing_of_the_platform_and_is_written_for_python_3_9() -> None:
    for path in FILES:
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {name for name in modules if name.partition(".")[0] in ("backendai", "django", "tests")}, path


def test_its_files_and_functions_are_small() -> None:
    for path in FILES:
        text = path.read_text()
        assert text.count("\n") <= 500, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 40, f"{path}: {node.name}"


@pytest.fixture(scope="module")
def documented() -> dict[str, set[str]]:
    """The methods of each address of the OpenAPI document, with nameless gaps."""
    paths = yaml.load((ROOT / "docs/openapi.yaml").read_text(), yaml.CSafeLoader)["paths"]
    return {_GAP.sub("{}", path): {method.upper() for method in methods} for path, methods in paths.items()}


@pytest.mark.parametrize("name", ROUTES)
def test_every_request_is_documented(name: str, documented: dict[str, set[str]]) -> None:
    route = ROUTES[name]
    if "/api/v1/device/" not in documented and name in ("begin_sign_in", "ask_for_token", "revoke_token"):
        pytest.skip("this portal has no sign-in by browser for programs")
    assert route.method in documented.get("/api/v1" + _GAP.sub("{}", route.path), set()), f"{route.method} {route.path}"


def test_every_request_is_used() -> None:
    text = "".join(path.read_text() for path in FILES if path.name != "api.py")
    assert not [name for name in ROUTES if not re.search(rf"\bapi\.{name}\b", text)]
