"""Updates the translation catalogues of the installation to the texts of the sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Field
from django.forms.utils import pretty_name
from django.urls import get_resolver
from django.utils.functional import Promise
from django.utils.text import capfirst

from backendai.ops.tools.texts.catalogue import Catalogue, Entry, Key, mo_bytes, po_text, read_po, renewed
from backendai.ops.tools.texts.found import merged, texts_of_code, texts_of_templates
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import PanelFilter, PanelTable

# Words that rooms below put together, or that come from the database as they were at the beginning.
_MORE = (
    "A space",
    "Memory",
    "GPU",
    "hours",
    "GiB-hours",
    "User",
    "Project",
    "Domain",
    "Resource group",
    "user",
    "users",
    "nobody",
    "key pair",
    "key pairs",
    "project",
    "projects",
    "domain",
    "domains",
    "invitation",
    "invitations",
)


def labels_of_pages() -> list[Entry]:
    """Return the names that forms, filters and tables take from models and fields."""
    len(get_resolver().url_patterns)  # loads every page
    names = sorted({name for name in (*_names(), *_MORE) if name and not isinstance(name, Promise)})
    return [Entry(Key(name), files=("backendai/portal/web/panel",)) for name in names]


def _names() -> Iterator[str]:
    for form in _all_below(EditForm):
        for name, field in form.base_fields.items():
            if name != "version":
                yield field.label if field.label is not None else pretty_name(name)
    for filters in _all_below(PanelFilter):
        for name, one in filters.base_filters.items():
            yield one.extra.get("label") or one.label or pretty_name(name)
    for table in _all_below(PanelTable):
        for name, column in table.base_columns.items():
            yield column.verbose_name if column.verbose_name is not None else _of_model(table, name)


def _of_model(table: Any, name: str) -> str:
    found: Any = next((one for one in table._meta.model._meta.get_fields() if one.name == name), None)
    return str(capfirst(found.verbose_name)) if isinstance(found, Field) else pretty_name(name)


def _all_below(kind: Any) -> Iterator[Any]:
    for one in kind.__subclasses__():
        yield one
        yield from _all_below(one)


SOURCE = "en"  # what the templates and the code say needs no catalogue
_HEADER = "Content-Type: text/plain; charset=UTF-8\nLanguage: {}\nPlural-Forms: {};\n"
_PLURALS = {"ko": "nplurals=1; plural=0"}


def languages() -> list[str]:
    """Return the codes of the languages with a catalogue."""
    return [code for code, _ in settings.LANGUAGES if code != SOURCE]


def po_path(language: str) -> Path:
    """Return the path of a language's catalogue."""
    return Path(settings.BASE_DIR) / "locale" / language / "LC_MESSAGES" / "django.po"


def texts() -> dict[Key, Entry]:
    """Return every text of the interface."""
    root = Path(settings.BASE_DIR)
    return merged(
        [
            *texts_of_templates(root / "templates", root),
            *texts_of_code(root / "backendai", root),
            *labels_of_pages(),
        ]
    )


def bring_up(language: str, found: dict[Key, Entry]) -> list[Key]:
    """Write both files of a language's catalogue; return the keys of untranslated texts."""
    path = po_path(language)
    usual = Catalogue("", _HEADER.format(language, _PLURALS.get(language, "nplurals=2; plural=n != 1")), {})
    catalogue = renewed(read_po(path) if path.exists() else usual, found)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(po_text(catalogue))
    path.with_suffix(".mo").write_bytes(mo_bytes(catalogue))
    return [key for key, entry in sorted(catalogue.entries.items()) if not entry.is_translated]
