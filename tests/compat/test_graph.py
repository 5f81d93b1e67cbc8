"""GraphQL of the official client: what is picked, in which order, and what a query may cost."""

from __future__ import annotations

import json

import pytest
from graphql import OperationDefinitionNode, parse

from backendai.portal.compat.graph import picked
from tests.cast import Cast
from tests.compat.callers import Signer
from tests.factories import make_running_session, make_session

PS = """query($limit: Int!, $offset: Int!, $status: String) {
  compute_session_list(limit: $limit, offset: $offset, status: $status) {
    items { name access_key id main_kernel_id image type status status_changed result } total_count
  }
}"""


def test_it_picks_the_selection_in_its_order() -> None:
    (operation,) = parse("{a {z, first: b, gone {x}, list {y}, whole}}").definitions
    assert isinstance(operation, OperationDefinitionNode)
    (root,) = operation.selection_set.selections
    value = {"b": 1, "z": 2, "list": [{"y": 3, "no": 4}], "whole": {"k": 5}, "hidden": 6}
    found = picked(root.selection_set, value)  # type: ignore[attr-defined]
    assert json.dumps(found) == '{"z": 2, "first": 1, "gone": null, "list": [{"y": 3}], "whole": {"k": 5}}'


@pytest.mark.django_db
def test_lists_have_pages_statuses_filters_and_orders(cast: Cast) -> None:
    running, waits = make_running_session(cast.alice, name="first-1"), make_session(cast.alice, name="second-1")
    make_session(cast.bob, name="bobs-1")
    alice = Signer(cast.alice)
    found = alice.query(PS, limit=20, offset=0, status="RUNNING,RUNNING_DEGRADED")["compute_session_list"]
    assert found["total_count"] == 1 and list(found["items"][0])[:3] == ["name", "access_key", "id"]
    assert (found["items"][0]["id"], found["items"][0]["status"]) == (str(running.pk), "RUNNING")
    page = alice.query(PS, limit=1, offset=1)["compute_session_list"]
    assert ([one["name"] for one in page["items"]], page["total_count"]) == (["first-1"], 2)
    ordered = "query($f: String, $o: String){compute_session_list(filter: $f, order: $o){items{name}}}"
    for text, order, names in (
        (None, "+name", ["first-1", "second-1"]),
        (None, "-name", ["second-1", "first-1"]),
        ('(name == "second-1")', "+nothing", ["second-1"]),
        ('name ilike "%FIRST%"', None, ["first-1"]),
        ('status != "PENDING"', None, ["first-1"]),
    ):
        answer = alice.query(ordered, f=text, o=order)["compute_session_list"]
        assert [one["name"] for one in answer["items"]] == names, (text, order)
    one = alice.query("query($id: UUID!){compute_session(id: $id){name containers{cluster_role}}}", id=str(waits.pk))
    assert one == {"compute_session": {"name": "second-1", "containers": [{"cluster_role": "main"}]}}
    assert alice.query("{keypair{user_id secret_key}}") == {
        "keypair": {"user_id": "alice@example.com", "secret_key": ""}
    }


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("{", "Syntax Error"),
        ("{a" * 900 + "}" * 900, "nested too deeply"),
        ("{keypair {a" + " a" * 3000 + "}}", "2000 tokens"),
        ("x" * (64 * 1024 + 1), "query must be a text"),
        ("{keypair{...secret}}", "there is a fragment"),
        ("{keypair{id}} fragment secret on KeyPair {id}", "Send one query"),
        (" ".join(["{", *(f"k{n}: keypair{{id}}" for n in range(11)), "}"]), "at most 10 fields"),
        ("mutation{create_user(email: \"a\"){ok}}", "does not offer create_user"),
    ],
    ids=["syntax", "nesting", "tokens", "length", "fragment", "definitions", "roots", "mutation"],
)  # fmt: skip
def test_a_query_is_bounded_and_refused_with_a_sentence(cast: Cast, query: str, part: str) -> None:
    answer = Signer(cast.alice).post("/admin/gql", {"query": query, "variables": {}})
    assert answer.status_code in (400, 501) and part in answer.json()["title"], answer.json()
