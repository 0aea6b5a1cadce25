"""What a start of the embedded broker asks for, without any broker."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from streams.broker.cluster import ClusterRecord, NodeRecord, RequestedCluster
from streams.broker.jars import KAFKA_VERSION
from streams.errors import DataFolderError

EXISTING = ClusterRecord("id", KAFKA_VERSION, (NodeRecord(1, 9092, 9093),), {"num.io.threads": "2"})


@pytest.mark.parametrize(("nodes", "ports"), [(2, None), (0, None), (3, (1, 2)), (1, (1, 2, 3))])
def test_a_number_of_nodes_that_is_no_cluster_or_does_not_fit_the_ports_is_refused(
    nodes: int, ports: Sequence[int] | None
) -> None:
    with pytest.raises(ValueError, match="nodes"):
        RequestedCluster(ports, nodes)


def test_a_new_cluster_has_an_id_and_ports_of_its_own() -> None:
    first, second = RequestedCluster(nodes=3, secured=True).new(), RequestedCluster(ports=[19092]).new()
    assert len({port for node in first.nodes for port in (node.port, node.controller_port)}) == 6
    assert (first.secured, second.secured) == (True, False)
    assert [node.port for node in second.nodes] == [19092]
    assert first.cluster_id != second.cluster_id


def test_what_is_not_asked_for_stays_as_it_is() -> None:
    assert RequestedCluster().applied_to(EXISTING, Path("x")) == EXISTING
    changed = RequestedCluster(ports=[19092], properties={"a": "b"}).applied_to(EXISTING, Path("x"))
    assert (changed.nodes, changed.properties) == ((NodeRecord(1, 19092, 9093),), {"a": "b"})
    assert changed.cluster_id == EXISTING.cluster_id


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (RequestedCluster(nodes=3), r"1 node\(s\), not 3"),
        (RequestedCluster(secured=True), "without security"),
        (RequestedCluster(ports=[1, 2, 3]), r"3 port\(s\) are given"),
    ],
)
def test_a_cluster_that_a_start_cannot_change_is_refused(requested: RequestedCluster, message: str) -> None:
    with pytest.raises(DataFolderError, match=message):
        requested.applied_to(EXISTING, Path("x"))
