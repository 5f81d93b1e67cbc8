"""Every button of the administration names its object."""

from __future__ import annotations

from collections.abc import Iterator

from backendai.portal.web.admin import urls as _all_pages  # noqa: F401 (imports every page)
from backendai.portal.web.admin.editing import ConfirmPage, FormPage


def _below(page: type) -> Iterator[type]:
    for each in page.__subclasses__():
        yield each
        yield from _below(each)


def test_every_form_and_confirmation_says_what_it_does_to_which_object() -> None:
    shown = {page for root in (FormPage, ConfirmPage) for page in _below(root) if not page.__subclasses__()}
    assert len(shown) > 30
    short = [page.__name__ for page in shown if " " not in str(getattr(page, "submit_label", ""))]
    short += [
        page.__name__ for page in shown if getattr(page, "delete_address", "") and " " not in str(page.delete_label)
    ]
    assert short == []
