"""The size of the database: the growing tables, and the queue."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db import connection

from backendai.base.core.slots import format_size
from backendai.base.texts.translation import gettext as _
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.compute.models import ComputeSession, Kernel, SchedulingRecord

_GROWING = (ComputeSession, Kernel, SchedulingRecord, AuditEntry, BackgroundJob)
_ESTIMATES = """
    SELECT relname, GREATEST(reltuples, 0)::bigint, pg_total_relation_size(oid)
    FROM pg_class WHERE relkind = 'r' AND relname = ANY(%s)
"""


def amounts_kept() -> list[tuple[str, str]]:
    """Return names and row counts as text. For PostgreSQL they are its estimates, as counting a large table is slow."""
    waiting = ComputeSession.objects.pending().count()
    rows = [(_("Pending sessions"), f"{waiting:,}")]
    if connection.vendor == "postgresql":
        return rows + _estimated()
    rows += [(str(model._meta.verbose_name_plural), f"{model._default_manager.count():,}") for model in _GROWING]
    file = Path(str(settings.DATABASES["default"]["NAME"]))
    return [*rows, (_("Database file"), format_size(file.stat().st_size))] if file.is_file() else rows


def _estimated() -> list[tuple[str, str]]:
    names = {model._meta.db_table: str(model._meta.verbose_name_plural) for model in _GROWING}
    with connection.cursor() as cursor:
        cursor.execute(_ESTIMATES, [list(names)])
        found = {table: (number, size) for table, number, size in cursor.fetchall()}
    return [
        (
            name,
            _("about %(number)s, %(size)s") % {"number": f"{found[table][0]:,}", "size": format_size(found[table][1])},
        )
        for table, name in names.items()
        if table in found
    ]
