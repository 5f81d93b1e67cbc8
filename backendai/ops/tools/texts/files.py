"""Updates the translation catalogues of the installation to the texts of the sources."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.conf import settings
from django.db.models import Field
from django.forms.utils import pretty_name
from django.urls import get_resolver
from django.utils.functional import Promise
from django.utils.text import capfirst

from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import PanelFilter, PanelTable

SOURCE = "en"  # what the templates and the code say needs no catalogue
_FOUND = "backendai.ops.tools.texts.found"
_SOURCES = {
    "backendai": {"**.py": f"{_FOUND}:texts_of_module"},
    "templates": {"**.html": f"{_FOUND}:texts_of_template", "**.txt": f"{_FOUND}:texts_of_template"},
}
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


def labels_of_pages() -> list[str]:
    """Return the names that forms, filters and tables take from models and fields."""
    len(get_resolver().url_patterns)  # loads every page
    return sorted({name for name in (*_names(), *_MORE) if name and not isinstance(name, Promise)})


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


def languages() -> list[str]:
    """Return the codes of the languages with a catalogue."""
    return [code for code, _ in settings.LANGUAGES if code != SOURCE]


def po_path(language: str) -> Path:
    """Return the path of a language's catalogue."""
    return Path(settings.BASE_DIR) / "locale" / language / "LC_MESSAGES" / "django.po"


def catalogue_in(path: Path) -> Catalog:
    """Return the catalogue in a file that translators edit."""
    with path.open("rb") as file:
        return read_po(file)


def po_bytes(catalogue: Catalog) -> bytes:
    """Return the catalogue as a file for translators."""
    file = BytesIO()
    write_po(file, catalogue, width=120, sort_output=True, ignore_obsolete=True, include_lineno=False)
    return file.getvalue()


def mo_bytes(catalogue: Catalog) -> bytes:
    """Return the catalogue as a file for Django, without untranslated texts."""
    translated = Catalog()
    for message in catalogue:
        if is_translated(message):
            translated[message.id] = message
    file = BytesIO()
    write_mo(file, translated)
    return file.getvalue()


def is_translated(message: Message) -> bool:
    """Return whether all translations exist and none is marked as doubtful."""
    forms = [message.string] if isinstance(message.string, str) else message.string or ()
    return bool(forms) and all(forms) and not message.fuzzy


def texts() -> Catalog:
    """Return every text of the interface, with the files that have it."""
    found = Catalog()
    for folder, methods in _SOURCES.items():
        for file, _, text, _, context in extract_from_dir(Path(settings.BASE_DIR) / folder, methods.items()):
            found.add(text, locations=[(f"{folder}/{file}", 0)], context=context)
    for name in labels_of_pages():
        found.add(name, locations=[("backendai/portal/web/admin", 0)])
    return found


def bring_up(language: str, found: Catalog) -> list[Message]:
    """Write both files of a language's catalogue; return the untranslated texts."""
    path = po_path(language)
    catalogue = catalogue_in(path) if path.exists() else Catalog(language, header_comment="#", fuzzy=False)
    catalogue.update(found, no_fuzzy_matching=True, update_creation_date=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(po_bytes(catalogue))
    path.with_suffix(".mo").write_bytes(mo_bytes(catalogue))
    return [message for message in catalogue if not is_translated(message)]
