"""The catalogues of the installation, brought up to what the sources say."""

from __future__ import annotations

import json
from pathlib import Path

from django.conf import settings

from backendai.ops.texts.catalogue import Catalogue, Entry, Key, mo_bytes, po_text, read_po, renewed
from backendai.ops.texts.found import merged, texts_of_code, texts_of_templates
from backendai.ops.texts.labels import labels_of_pages
from backendai.ops.texts.sentences import sentences_of_code

SOURCE = "en"  # what the templates and the code say needs no catalogue
_HEADER = "Content-Type: text/plain; charset=UTF-8\nLanguage: {}\nPlural-Forms: {};\n"
_PLURALS = {"ko": "nplurals=1; plural=0"}


def languages() -> list[str]:
    """Return the languages with a catalogue."""
    return [code for code, _ in settings.LANGUAGES if code != SOURCE]


def po_path(language: str, domain: str = "django") -> Path:
    """Return where the catalogue is."""
    return Path(settings.BASE_DIR) / "locale" / language / "LC_MESSAGES" / f"{domain}.po"


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


def sentences() -> dict[Key, Entry]:
    """Return the English sentences of the rooms below the pages."""
    root = Path(settings.BASE_DIR)
    return merged([*sentences_of_code(root / "backendai", root), *labels_of_pages()])


def json_text(catalogue: Catalogue) -> str:
    """Return the catalogue as the pages read sentences: English → translation."""
    said = {key.text: entry.translations[0] for key, entry in catalogue.entries.items() if entry.is_translated}
    return json.dumps(said, ensure_ascii=False, indent=0, sort_keys=True) + "\n"


def bring_up(language: str, domain: str, found: dict[Key, Entry]) -> list[Key]:
    """Write both files of a catalogue anew and return what is still to be translated."""
    path = po_path(language, domain)
    usual = Catalogue("", _HEADER.format(language, _PLURALS.get(language, "nplurals=2; plural=n != 1")), {})
    catalogue = renewed(read_po(path) if path.exists() else usual, found)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(po_text(catalogue))
    if domain == "sentences":
        path.with_suffix(".json").write_text(json_text(catalogue))
    else:
        path.with_suffix(".mo").write_bytes(mo_bytes(catalogue))
    return [key for key, entry in sorted(catalogue.entries.items()) if not entry.is_translated]
