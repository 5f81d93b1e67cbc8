"""Answers the GraphQL of the official client: root fields are functions, and of what they return a selection is picked.

There is no schema, as the client asks for none: a field that is not known is null, an unknown root is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from graphql import (
    FieldNode,
    FragmentSpreadNode,
    GraphQLError,
    OperationDefinitionNode,
    SelectionSetNode,
    Undefined,
    parse,
)
from graphql.utilities import value_from_ast_untyped

from backendai.base.core.errors import UserError
from backendai.portal.compat.frame import Call, NotOffered

Values = dict[str, Any]
Root = Callable[[Call, Values], Any]
LONGEST_QUERY, MOST_TOKENS, MOST_ROOTS = 64 * 1024, 2000, 10


def answering(roots: Mapping[str, Root]) -> Callable[[Call], Values]:
    """Return the handler that answers queries by these functions."""

    def answer(call: Call) -> Values:
        try:
            return {"data": dict(_answers(call, roots))}
        except GraphQLError as error:
            raise UserError(
                "The query cannot be read: {problem}", problem=error.message, code="invalid-query"
            ) from error

    return answer


def picked(selected: SelectionSetNode | None, value: Any) -> Any:
    """Return the selected parts of a value, in the order of the selection."""
    if isinstance(value, list):
        return [picked(selected, one) for one in value]
    if not isinstance(value, dict) or selected is None:
        return value
    return {
        (one.alias or one.name).value: picked(one.selection_set, value.get(one.name.value)) for one in _fields(selected)
    }


def _answers(call: Call, roots: Mapping[str, Root]) -> Iterator[tuple[str, Any]]:
    document = parse(call.text("query", most=LONGEST_QUERY), max_tokens=MOST_TOKENS)
    operation, variables = document.definitions[0], call.values.get("variables") or {}
    if not isinstance(operation, OperationDefinitionNode) or len(document.definitions) > 1:
        raise UserError("Send one query or one mutation without fragments.", code="invalid-query")
    if not isinstance(variables, dict) or len(operation.selection_set.selections) > MOST_ROOTS:
        raise UserError("Send variables by name, and at most {most} fields.", most=MOST_ROOTS, code="invalid-query")
    for field in _fields(operation.selection_set):
        root = roots.get(field.name.value)
        if root is None:
            raise NotOffered("This platform does not offer {name} to this client.", name=field.name.value)
        given = {one.name.value: value_from_ast_untyped(one.value, variables) for one in field.arguments or ()}
        said = {name: value for name, value in given.items() if value not in (None, Undefined)}
        yield (field.alias or field.name).value, picked(field.selection_set, root(call, said))


def _fields(selected: SelectionSetNode) -> Iterator[FieldNode]:
    for one in selected.selections:
        if not isinstance(one, FieldNode):
            kind = "fragment" if isinstance(one, FragmentSpreadNode) else "inline fragment"
            raise GraphQLError(f"there is a {kind}, which this server does not read.")
        yield one
