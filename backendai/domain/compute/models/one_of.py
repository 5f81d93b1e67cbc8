"""The lookup ``status__one_of=LIVE``: like ``__in``, with the statuses as literals in the SQL.

SQLite uses a partial index on live sessions only if the SQL itself names the statuses. With bound parameters SQLite
scans all sessions.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Lookup

from backendai.domain.compute.status import Status


class OneOf(Lookup):
    """A lookup for statuses from code, written as literals."""

    lookup_name = "one_of"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the SQL condition and its parameters. The statuses have the same order as in the conditions of
        indexes."""
        column, parameters = self.process_lhs(compiler, connection)
        statuses = [f"'{Status(one).value}'" for one in sorted(self.rhs)]
        condition = f"= {statuses[0]}" if len(statuses) == 1 else f"IN ({', '.join(statuses)})"
        return f"{column} {condition}", parameters
