"""Updates the translation catalogues of the installation to the texts of the sources."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from backendai.ops.tools.texts.catalogue import Catalogue, Entry, Key, mo_bytes, po_text, read_po, renewed
from backendai.ops.tools.texts.found import merged, texts_of_code, texts_of_templates
from backendai.ops.tools.texts.labels import labels_of_pages

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
