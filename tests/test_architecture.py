"""The rooms and who may import whom. Changing the table is a design decision."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from backendai.base.core.session_kinds import KINDS, USUAL_KIND

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "backendai"

# The foundation: agents and file servers stand on it, too. The others need Django, and only doors translate.
_BASE = {"base.core", "base.process", "base.paths", "base.wire"}
_BELOW_ACCOUNTS = {"base.db", "domain.activity"} | _BASE
# A group names its strategies, and refuses unknown ones.
_BELOW_CLUSTER = {"domain.accounts", "scheduler"} | _BELOW_ACCOUNTS
_BELOW_CATALOG = {"domain.cluster"} | _BELOW_CLUSTER
_BELOW_COMPUTE = {"domain.catalog", "domain.storage"} | _BELOW_CATALOG
_BELOW_PLANNING = {"domain.usage", "domain.compute"} | _BELOW_COMPUTE
_BELOW_SERVING = {"domain.planning"} | _BELOW_PLANNING
_BELOW_DOORS = {
    "domain.pipelines",
    "domain.forecasts",
    "domain.serving",
    "domain.templates",
    "gates.gateways",
    "base.texts",
} | _BELOW_SERVING

MAY_IMPORT: dict[str, set[str]] = {
    "base.core": set(),
    "base.process": {"base.core"},
    "base.paths": {"base.core"},
    "base.texts": {"base.core"},
    "base.db": {"base.core"},
    "base.wire": {"base.core", "base.paths"},
    "scheduler": {"base.core"},
    "domain.activity": {"base.db"} | _BASE,
    "domain.accounts": _BELOW_ACCOUNTS,
    "domain.cluster": _BELOW_CLUSTER,
    "domain.catalog": _BELOW_CATALOG,
    "domain.storage": _BELOW_CATALOG,
    "domain.compute": _BELOW_COMPUTE,
    "domain.templates": {"domain.compute"} | _BELOW_COMPUTE,
    "domain.usage": {"domain.compute"} | _BELOW_COMPUTE,
    "domain.planning": _BELOW_PLANNING,
    "domain.forecasts": {"domain.pipelines"} | _BELOW_SERVING,
    "domain.serving": _BELOW_SERVING,
    "domain.pipelines": {"domain.templates", "domain.compute"} | _BELOW_COMPUTE,
    "gates.gateways": {"domain.compute"} | _BELOW_COMPUTE,
    "gates.appproxy": {"domain.serving", "gates.gateways", "base.texts"} | _BELOW_PLANNING,
    "gates.sshgate": {"gates.gateways", "domain.compute"} | _BELOW_COMPUTE,
    "portal.loops": _BELOW_DOORS,
    "portal.agents": {"portal.loops"} | _BELOW_DOORS,
    "portal.api": _BELOW_DOORS,
    "portal.web": _BELOW_DOORS,
    "portal.realtime": {"gates.gateways", "base.texts"} | _BELOW_PLANNING,
    "portal.compat": {"portal.api", "portal.realtime"} | _BELOW_DOORS,
    "portal.http": {"portal.api", "portal.loops"} | _BELOW_DOORS,
    "agent": _BASE,
    "files": _BASE,
}
FRAME = {"settings", "celery", "asgi", "wsgi", "urls", "ops", "__init__"}
# Folders that import only from those before them in their own floor.
ORDERS = {
    "domain/compute/services": (
        "notices",
        "apps",
        "status",
        "requests",
        "images",
        "placing",
        "agents",
        "life",
        "records",
        "launching",
    ),
    "agent/backends": ("shared", "docker", "kubernetes", "native", "qemu", "simulated"),
}

FILES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts and path.stat().st_size)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def room_of(path: Path) -> str:
    """Return the floor of a file, and its room on the floors that have rooms."""
    return room_in(path.relative_to(PACKAGE).with_suffix("").parts)


def room_in(parts: Sequence[str]) -> str:
    has_rooms = parts[0] in {"base", "domain", "gates", "portal"} and len(parts) > 1
    return ".".join(parts[:2]) if has_rooms else parts[0]


def first_party_imports(tree: ast.AST) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("backendai"):
            found.append((node.lineno, node.module or ""))
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names if alias.name.startswith("backendai")]
    return found


def functions_of(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_file_imports_only_from_rooms_below() -> None:
    files = [path for path in FILES if room_of(path) not in FRAME]
    assert {room_of(path) for path in files} <= set(MAY_IMPORT), "a room is missing in the table of rooms"
    offenders = [
        f"{shown(path)}:{line} imports {module}"
        for path in files
        for line, module in first_party_imports(parsed(path))
        if room_in(module.split(".")[1:]) not in MAY_IMPORT[room_of(path)] | {room_of(path)}
    ]
    assert not offenders, "\n".join(offenders)


@pytest.mark.parametrize("folder", ORDERS)
def test_folders_of_a_floor_import_only_from_those_before(folder: str) -> None:
    order, package = ORDERS[folder], "backendai." + folder.replace("/", ".")
    offenders = []
    for path in (path for path in FILES if folder in shown(path)):
        name = path.relative_to(PACKAGE / folder).parts[0]
        allowed = order[: order.index(name) + 1] if name in order else ()
        for line, module in first_party_imports(parsed(path)):
            if module.startswith(f"{package}.") and (part := module.split(".")[package.count(".") + 1]) in order:
                offenders += [f"{shown(path)}:{line} imports {module}"] * (part not in allowed)
    assert not offenders, "\n".join(offenders)
    assert set(order) <= {path.name for path in (PACKAGE / folder).iterdir()}


def test_folders_are_small() -> None:
    files = Counter(shown(path.parent) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    large = {folder: count for folder, count in files.items() if count > 20 and "migrations" not in folder}
    assert not large, "at most 20 files; what shares a prefix becomes a folder"
    assert len([path for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]) <= 10


def test_no_function_hides_a_first_party_import() -> None:
    offenders = [
        f"{shown(path)}:{function.lineno} {function.name}"
        for path in FILES
        for function in functions_of(parsed(path))
        if first_party_imports(function)
    ]
    assert not offenders, "\n".join(offenders)


def test_files_and_functions_are_small() -> None:
    offenders = []
    for path in FILES:
        if (lines := path.read_text().count("\n")) > 500:
            offenders.append(f"{shown(path)} has {lines} lines, 500 are allowed")
        for function in functions_of(parsed(path)):
            size = (function.end_lineno or function.lineno) - function.lineno + 1
            if size > 40:
                offenders.append(f"{shown(path)}:{function.lineno} {function.name} has {size} lines, 40 are allowed")
    assert not offenders, "\n".join(offenders)


# Names of kinds stand in the table, in the words of pages, and in how agents are told to run a kernel.
NAMES_KINDS = {"base/core/session_kinds.py", "portal/web/frame/kind_words.py", "base/wire/messages.py"}
COMPARED = re.compile(rf"""session_type\S*\s*([=!]==?\s*|\]\[value=)["']({"|".join(KINDS)})["']""")


def test_rooms_ask_the_table_of_session_kinds_and_compare_no_type() -> None:
    offenders = [
        f"{shown(path)}:{node.lineno}"
        for path in FILES
        if path.relative_to(PACKAGE).as_posix() not in NAMES_KINDS
        for node in ast.walk(parsed(path))
        if _names_usual_kind(node) or _compares_type(node) or _filters_by_type(node)
    ]
    pages = [
        *(ROOT / "templates").rglob("*.html"),
        *(ROOT / "static/js").glob("*.js"),
        *(ROOT / "static/css").glob("*.css"),
    ]
    offenders += [shown(path) for path in pages if COMPARED.search(path.read_text())]
    assert not offenders, "\n".join(offenders)


def _names_usual_kind(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == USUAL_KIND.name


def _compares_type(node: ast.AST) -> bool:
    """Return whether a session's type is compared with one other value; a list of a group may contain it."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return False
    return any("session_type" in ast.unparse(side) for side in [node.left, *node.comparators])


def _filters_by_type(node: ast.AST) -> bool:
    is_named = isinstance(node, ast.keyword) and str(node.arg).endswith("session_type")
    return is_named and isinstance(node.value, ast.Constant)


def test_it_has_no_import_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for path in FILES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        runtime = _without_type_checking(parsed(path))
        graph[module] = {target for _, target in first_party_imports(runtime)} - {module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' → '.join(error.args[1])}")


# The agent's side, what starts and examines agents, and what is told of agents that report no capabilities.
_MAY_NAME_BACKENDS = {"agent", "settings", "ops"}
_NAMES_OF_BACKENDS = {"docker", "kubernetes", "process", "qemu", "simulated"}


def test_nobody_decides_by_the_name_of_a_backend() -> None:
    offenders = [
        f"{shown(path)}:{node.lineno}"
        for path in FILES
        if room_of(path) not in _MAY_NAME_BACKENDS and shown(path) != "backendai/domain/cluster/capabilities.py"
        for node in ast.walk(parsed(path))
        if _names_a_backend(node)
    ]
    assert not offenders, "ask for a capability (domain/cluster/capabilities.py): " + ", ".join(offenders)
    assert _names_a_backend(ast.parse("agent.backend in OTHERS").body[0].value)  # type: ignore[attr-defined]
    assert _names_a_backend(ast.parse("rows.exclude(backend__in=names)").body[0].value)  # type: ignore[attr-defined]


def _names_a_backend(node: ast.AST) -> bool:
    """Return whether a comparison or a filter asks for a backend, or a table is keyed by backends."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(_is_backend(side) for side in sides)
    if isinstance(node, ast.Dict | ast.Set):
        return any(_is_backend(key) for key in (node.keys if isinstance(node, ast.Dict) else node.elts))
    if isinstance(node, ast.Call):
        return any((word.arg or "").startswith("backend__") for word in node.keywords)
    return False


def _is_backend(node: ast.AST | None) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "backend"
    return isinstance(node, ast.Constant) and node.value in _NAMES_OF_BACKENDS


def test_the_scheduler_pulls_in_neither_django_nor_celery(tmp_path: Path) -> None:
    code = (
        "import sys, backendai.scheduler.decide; print(sorted({'django','celery','redis','docker'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def _without_type_checking(tree: ast.Module) -> ast.Module:
    body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    return ast.Module(body=body, type_ignores=[])
