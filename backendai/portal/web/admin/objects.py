"""The administration pages of one kind of object, declared in one class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from django.db.models import Model, QuerySet
from django.urls import URLPattern, path
from django.utils.functional import Promise

from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.editing import DeletePage, FormPage
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import ListPage, PanelFilter, PanelTable

_Text = str | Promise


class ObjectPages(PanelPage):
    """The list of one kind of object, the form of a new and an existing one, and the deletion.

    ``paths`` makes the views and their addresses. Their routes are ``section``, ``<name>-new``, ``<name>`` and
    ``<name>-delete``. Each view inherits the class, so its methods see ``viewer`` and ``object``, and may override
    those of the view: of ``FormPage`` (``save``, ``notes``) and of ``delete_page`` (``delete``, ``consequences``).
    """

    name: ClassVar[str]
    key: ClassVar[str] = "int"  # the converter of keys in addresses
    model: ClassVar[type[Model]]
    table_class: ClassVar[type[PanelTable]]
    filterset_class: ClassVar[type[PanelFilter] | None] = None
    form_class: ClassVar[type[EditForm]]
    delete_page: ClassVar[type[DeletePage]] = DeletePage
    delete_word: ClassVar[str] = "delete"
    new_label: _Text = ""  # empty: the platform creates them
    save_label: _Text
    delete_label: _Text = ""  # empty: they stay
    form_lead: _Text = ""
    list_template: ClassVar[str] = ListPage.template_name
    form_template: ClassVar[str] = FormPage.template_name
    object: Any = None  # None in the list and for a new one
    find: Callable[[], Any]  # the row as it is stored; None for a new one

    def rows(self) -> QuerySet[Any]:
        """Return the rows of the list."""
        return self.model._default_manager.all()

    def list_context(self) -> dict[str, Any]:
        """Return what ``list_template`` needs besides the list."""
        return {}

    def form_context(self) -> dict[str, Any]:
        """Return what ``form_template`` needs besides the form."""
        return {}

    @classmethod
    def paths(cls) -> Iterator[URLPattern]:
        """Yield the addresses of the object's pages."""
        one, new, delete = cls.name, f"{cls.name}-new", f"{cls.name}-{cls.delete_word}"
        yield path(f"{cls.section}/", cls._list(new).as_view(), name=cls.section)
        form = cls._form(delete).as_view()
        if cls.new_label:
            yield path(f"{cls.section}/new/", form, name=new)
        yield path(f"{cls.section}/<{cls.key}:pk>/", form, name=one)
        if cls.delete_label:
            way = f"{cls.section}/<{cls.key}:pk>/{cls.delete_word}/"
            yield path(way, cls._delete().as_view(), name=delete)
        yield from cls.more

    @classmethod
    def _list(cls, new: str) -> type[ListPage]:
        return cls._page(
            ListPage,
            template_name=cls.list_template,
            create_address=f"manage:{new}" if cls.new_label else "",
            create_label=cls.new_label,
            get_queryset=cls.rows,
            page_context=cls.list_context,
        )

    @classmethod
    def _form(cls, delete: str) -> type[FormPage]:
        return cls._page(
            FormPage,
            template_name=cls.form_template,
            title=cls.new_label,
            lead=cls.form_lead,
            submit_label=cls.save_label,
            list_address=f"manage:{cls.section}",
            delete_address=f"manage:{delete}" if cls.delete_label else "",
            page_context=cls.form_context,
        )

    @classmethod
    def _delete(cls) -> type[DeletePage]:
        labels = {"title": cls.delete_label, "submit_label": cls.delete_label}
        return cls._page(cls.delete_page, list_address=f"manage:{cls.section}", row_address="", **labels)

    @classmethod
    def _page(cls, kind: type[Any], **values: Any) -> type[Any]:
        return type(f"{cls.__name__}{kind.__name__}", (cls, kind), values)
