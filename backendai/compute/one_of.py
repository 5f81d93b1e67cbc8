"""``status__one_of=LIVE``: as ``__in``, with the statuses written into the statement.

SQLite takes an index that holds live sessions only where the statement itself says which those are: of values that are
handed over beside it, it knows nothing yet when it plans. The difference is a look at every session there ever was.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Lookup

from backendai.compute.status import Status


class OneOf(Lookup):
    """The column is one of these statuses, which come from code."""

    lookup_name = "one_of"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the condition, in the order in which indexes name the statuses."""
        column, parameters = self.process_lhs(compiler, connection)
        statuses = [f"'{Status(one).value}'" for one in sorted(self.rhs)]
        condition = f"= {statuses[0]}" if len(statuses) == 1 else f"IN ({', '.join(statuses)})"
        return f"{column} {condition}", parameters
