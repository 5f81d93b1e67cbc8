"""The usual titles and icons of apps, and their sections of the app launcher."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from backendai.base.core.messages import Message


class Category(StrEnum):
    """The sections of the app launcher, in display order."""

    UTILITIES = "utilities"
    DEVELOPMENT = "development"
    MACHINE_LEARNING = "machine-learning"
    SCIENTIFIC = "scientific"
    DESKTOP = "desktop"
    OTHER = "other"
    PORTS = "ports"


class AppKind(NamedTuple):
    """An app's title, its section of the launcher, and the name of its icon."""

    title: str
    category: Category
    icon: str


_ICONS = {
    Category.UTILITIES: "tool",
    Category.DEVELOPMENT: "code",
    Category.MACHINE_LEARNING: "chart-dots",
    Category.SCIENTIFIC: "flask",
    Category.DESKTOP: "device-desktop",
    Category.OTHER: "apps",
    Category.PORTS: "network",
}
_TITLE, _CATEGORY = "title", "category"
_LONGEST_TITLE = 64
_BY_PROTOCOL = {"preopen": Category.PORTS, "vnc": Category.DESKTOP, "rdp": Category.DESKTOP}
_DEV, _ML = Category.DEVELOPMENT, Category.MACHINE_LEARNING
_KNOWN = {
    "ttyd": AppKind(Message("Terminal (ttyd)"), Category.UTILITIES, "terminal-2"),
    "filebrowser": AppKind("File Browser", Category.UTILITIES, "folder"),
    "jupyterlab": AppKind("JupyterLab", _DEV, "notebook"),
    "jupyter": AppKind("Jupyter Notebook", _DEV, "notebook"),
    "vscode": AppKind("VS Code", _DEV, "code"),
    "code-server": AppKind("VS Code", _DEV, "code"),
    "tensorboard": AppKind("TensorBoard", _ML, "chart-dots"),
    "mlflow": AppKind("MLflow", _ML, "chart-dots"),
    "mlflow-ui": AppKind("MLflow", _ML, "chart-dots"),
    "nniboard": AppKind("NNI Board", _ML, "chart-dots"),
    "digits": AppKind("DIGITS", _ML, "chart-dots"),
    "rstudio": AppKind("RStudio", Category.SCIENTIFIC, "flask"),
    "rstudio-server": AppKind("RStudio", Category.SCIENTIFIC, "flask"),
    "shiny": AppKind("Shiny", Category.SCIENTIFIC, "flask"),
    "vnc": AppKind("VNC", Category.DESKTOP, "device-desktop"),
    "vnc-web": AppKind("noVNC", Category.DESKTOP, "device-desktop"),
    "novnc": AppKind("noVNC", Category.DESKTOP, "device-desktop"),
    "xrdp": AppKind("RDP", Category.DESKTOP, "device-desktop"),
    "rdp": AppKind("RDP", Category.DESKTOP, "device-desktop"),
}


def kind_of(service: str, protocol: str, labels: Mapping[str, str]) -> AppKind:
    """Return a service's title, section and icon. Labels of the image override the usual values for the service's
    name."""
    category = _BY_PROTOCOL.get(protocol, Category.OTHER)
    usual = _KNOWN.get(service) or AppKind(service, category, _ICONS[category])
    title = str(labels.get(f"ai.backend.app.{service}.{_TITLE}", "")).strip()[:_LONGEST_TITLE]
    label = str(labels.get(f"ai.backend.app.{service}.{_CATEGORY}", ""))
    if label in set(Category) - {Category.PORTS}:
        icon = usual.icon if usual.category == label else _ICONS[Category(label)]
        usual = AppKind(usual.title, Category(label), icon)
    return AppKind(title, usual.category, usual.icon) if title.isprintable() and title else usual


def title_of(service: str) -> str:
    """Return the usual title of a service; the service's name if there is none."""
    known = _KNOWN.get(service)
    return known.title if known else service
