"""The label by which an image declares its services."""

from __future__ import annotations

import pytest

from backendai.base.core.service_ports import ServicePort, service_ports_of


def read(label: str) -> list[ServicePort]:
    return service_ports_of({"ai.backend.service-ports": label})


def test_it_reads_single_ports_and_lists_of_them() -> None:
    assert read("jupyterlab:http:[8888, 8890],ring:tcp:9000") == [
        ServicePort("jupyterlab", "http", (8888, 8890)),
        ServicePort("ring", "tcp", (9000,)),
    ]
    assert read("a:http:[8888]")[0].port == 8888
    assert service_ports_of({}) == []


@pytest.mark.parametrize(
    "entry",
    [
        "b:http:80",
        "b:http:65535",
        "b:http:2200",
        "b:http:[]",
        "b:ftp:9000",
        "B_1:http:9000",
        "-b:http:9000",
        "b.c:http:9000",
        f"{'b' * 31}:http:9000",
        "b:http:99999999999999999999",
        "a:http:9000",
        "b:http:8888",
    ],
)
def test_it_leaves_out_what_breaks_the_rules_and_keeps_the_rest(entry: str) -> None:
    assert [one.name for one in read(f"a:http:[8888],{entry},z:http:9999")] == ["a", "z"]
