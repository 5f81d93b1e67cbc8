"""Certificate authorities, package indexes and proxies of sessions: what is taken, logged and given to kernels."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.wire.messages import KernelSpec
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.groups.session_network import authorities_of
from backendai.domain.cluster.site import change_site, site_settings
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from tests.cast import Cast
from tests.certificates import certificate, private_key
from tests.factories import make_agent, make_session, place

pytestmark = pytest.mark.django_db
INDEX = "https://reader:canary-5a@pypi.lab.example/simple"


def change(cast: Cast, **values: Any) -> None:
    change_site(cast.dana, values, now=timezone.now())


def spec(cast: Cast, **over: Any) -> KernelSpec:
    session, agent = make_session(cast.alice, **over), make_agent()
    place(session, agent)
    return spec_for(agent, session.kernels.order_by("rank")[0].pk)


def test_a_bundle_is_kept_without_what_stands_around_its_certificates(cast: Cast) -> None:
    two = f"# our root\n{certificate()}\nsubject=x\n{certificate('Proxy CA')}"
    change(cast, session_authorities=two)
    kept = site_settings().session_authorities
    assert kept == certificate() + certificate("Proxy CA")
    assert [(each.subject, each.ends_at.year) for each in authorities_of(kept)] == [
        ("Lab Root CA", 2040),
        ("Proxy CA", 2040),
    ]
    assert spec(cast).authorities == kept


def test_an_authority_that_has_expired_is_known_as_such() -> None:
    old, new = authorities_of(certificate("Old", datetime(2020, 1, 1, tzinfo=UTC)) + certificate())
    assert (old.has_expired, new.has_expired) == (True, False)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("session_authorities", certificate() + private_key(), "contains a private key"),
        ("session_authorities", "hello", "No certificate found"),
        ("session_authorities", certificate()[:300], "not complete"),
        ("session_authorities", certificate().replace("MII", "AAA", 1), "Certificate 1 cannot be read"),
        ("session_authorities", certificate() * 400, "at most 131072"),
        ("session_authorities", 7, "write a text"),
        ("package_index", "ftp://x", "enter http:// or https://"),
        ("package_index", "https://", "enter http:// or https://"),
        ("package_index", "https://a b", "enter http:// or https://"),
        ("session_http_proxy", "proxy:3128", "enter http:// or https://"),
        ("package_extra_indexes", ["https://a.example", "b"], "'b' is not an address"),
        ("package_extra_indexes", "a" * 21, "not an address"),
        ("session_no_proxy", ["a.example", "http://b"], "'http://b' is not a host"),
        ("package_trusted_hosts", ["h"] * 21, "21 lines"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(cast: Cast, name: str, value: Any, said: str) -> None:
    with pytest.raises(UserError) as refused:
        change(cast, **{"public_apps": True, name: value})
    assert refused.value.field == name
    assert said in refused.value.message
    assert not site_settings().public_apps


def test_a_refused_address_does_not_repeat_its_password(cast: Cast) -> None:
    with pytest.raises(UserError) as refused:
        change(cast, package_index=INDEX.replace("https", "ftp"))
    assert "canary" not in refused.value.message


def test_the_audit_log_has_no_passwords_and_says_whose_certificates_they_are(cast: Cast) -> None:
    change(cast, package_index=INDEX, package_extra_indexes=[INDEX], session_authorities=certificate())
    details = AuditEntry.objects.get(action="site-settings.change").details
    assert "canary" not in str(details)
    assert details["changes"]["package_index"] == ["", "https://***@pypi.lab.example/simple"]
    assert details["changes"]["session_authorities"] == [[], ["Lab Root CA, until 2040-01-02"]]


def test_kernels_get_indexes_and_proxies_as_variables(cast: Cast) -> None:
    assert "NO_PROXY" not in spec(cast).environ
    change(
        cast,
        package_index=INDEX,
        package_extra_indexes=["https://a.example", "https://b.example"],
        package_trusted_hosts=["a.example"],
        session_https_proxy="http://proxy:3128",
        session_no_proxy=[".lab.example", "10.0.0.0/8"],
    )
    found = spec(cast, cluster_size=2).environ
    assert found["PIP_INDEX_URL"] == found["UV_DEFAULT_INDEX"] == INDEX
    assert found["PIP_EXTRA_INDEX_URL"] == "https://a.example https://b.example"
    assert found["PIP_TRUSTED_HOST"] == "a.example"
    assert found["HTTPS_PROXY"] == found["https_proxy"] == "http://proxy:3128"
    assert "HTTP_PROXY" not in found
    assert found["no_proxy"] == "localhost,127.0.0.1,::1,main1,sub1,.lab.example,10.0.0.0/8"


def test_a_persons_own_variables_win_in_either_spelling(cast: Cast) -> None:
    change(cast, package_index=INDEX, session_http_proxy="http://proxy:3128")
    found = spec(cast, environ={"http_proxy": "http://mine:1", "PIP_INDEX_URL": "https://mine.example"}).environ
    assert (found["http_proxy"], found["PIP_INDEX_URL"]) == ("http://mine:1", "https://mine.example")
    assert "HTTP_PROXY" not in found
