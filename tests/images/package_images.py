"""The platform's larger images without their build: packages, programs, service definitions and labels of the real ones
on the tiny image with Python."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docker import APIClient

from tests.agent.images import ensure_packages_image, has_image
from tests.images.test_kernel_images import read_labels

_IMAGES = Path(__file__).resolve().parents[2] / "images"
_PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target")
_WITHIN = 600
_CONFIG = "jupyter_server_config.py"
_JUPYTER = ("jupyter-lab", "jupyterlab"), ("jupyter-notebook", "notebook"), ("tensorboard", "tensorboard.main")


@dataclass(frozen=True)
class _Recipe:
    """What an image is made of: ``wanted`` are the words for pip."""

    name: str
    wanted: Sequence[str]
    files: Sequence[tuple[str, bytes | Path]]
    settings: Sequence[str]

    def reference(self) -> str:
        """Return its reference, which changes with all that it is made of."""
        digest = hashlib.sha256(repr((sys.version_info[:2], self.settings)).encode())
        for word in self.wanted:
            digest.update(Path(word).read_bytes() if word.endswith(".txt") else word.encode())
        for name, content in self.files:
            digest.update(name.encode())
            digest.update(content.read_bytes() if isinstance(content, Path) else content)
        return f"local/backendai-test-{self.name}:{digest.hexdigest()[:12]}"


def ensure_lab_image() -> str:
    """Return an image with JupyterLab, Jupyter Notebook and TensorBoard as ``python-science`` offers them."""
    jupyter, science = (str(_IMAGES / name / "requirements.txt") for name in ("python", "python-science"))
    definitions = [
        path
        for name in ("python", "python-science")
        for path in sorted((_IMAGES / name / "service-defs").glob("*.json"))
    ]
    labels = read_labels("python-science") | {"ai.backend.runtime-path": "/usr/bin/python3"}
    share = "/opt/packages/share/jupyter"
    return _ensure(
        _Recipe(
            "lab",
            ["--requirement", jupyter, "--constraint", science, "tensorboard"],
            [
                *((f"etc/backend.ai/service-defs/{path.name}", path) for path in definitions),
                *((f"opt/kernel/bin/{name}", _program(f"-m {module}")) for name, module in _JUPYTER),
                (f"opt/packages/etc/jupyter/{_CONFIG}", _IMAGES / "python" / _CONFIG),
            ],
            [
                f"ENV JUPYTER_PATH={share}",
                f"ENV JUPYTERLAB_DIR={share}/lab",
                "ENV JUPYTER_CONFIG_PATH=/opt/packages/etc/jupyter",
                *(f'LABEL {name}="{value}"' for name, value in labels.items()),
            ],
        )
    )


def ensure_serve_image() -> str:
    """Return an image with the server and the model of ``serve``."""
    program = _IMAGES / "serve" / "serve_model.py"
    return _ensure(
        _Recipe(
            "serve",
            ["--no-deps", "--requirement", str(_IMAGES / "serve" / "requirements.txt")],
            [("opt/serve/serve_model.py", program), ("usr/bin/serve-model", _program("/opt/serve/serve_model.py"))],
            [],
        )
    )


def _program(words: str) -> bytes:
    return f'#!/bin/sh\nexec /usr/bin/python3 {words} "$@"\n'.encode()


def _ensure(recipe: _Recipe) -> str:
    """Make the image, unless the engine has it: a minute, and it takes a package index."""
    client = APIClient(timeout=300)
    try:
        reference = recipe.reference()
        if not has_image(client, reference):
            with tempfile.TemporaryDirectory(prefix="backendai-packages-") as folder:
                subprocess.run([*_PIP, folder, *recipe.wanted], check=True, timeout=_WITHIN)
                told = ("ENV PYTHONPATH=/opt/packages", *recipe.settings)
                ensure_packages_image(client, reference, Path(folder), more=recipe.files, told=told)
        return reference
    finally:
        client.close()
