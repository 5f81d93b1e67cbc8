"""The packet rules as text, on any machine."""

from __future__ import annotations

import pytest

from backendai.agent.backends.docker.networks.firewall import Firewall


def test_shielded_addresses_are_in_the_rules_of_their_family() -> None:
    firewall = Firewall(["10.1.2.3", "2001:db8::7", "10.9.0.0/16"])
    four, six = list(firewall._rules("DOCKER-USER")), list(firewall._rules_v6("FORWARD"))
    assert "-d 10.1.2.3/32 -j REJECT" in four and "-d 10.9.0.0/16 -j REJECT" in four
    assert "-d 2001:db8::7/128 -j REJECT" in six
    assert "-d 10.1.2.3/32 -p tcp -j REJECT --reject-with tcp-reset" in four, "programs hear of it at once"
    assert not [rule for rule in four if "2001" in rule] and not [rule for rule in six if " 10." in rule]


@pytest.mark.parametrize("rules", [Firewall([])._rules, Firewall([])._rules_v6])
def test_services_of_the_node_are_refused(rules: object) -> None:
    assert callable(rules)
    assert list(rules("INPUT"))[-1] == "-j REJECT"
