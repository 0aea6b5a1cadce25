"""Whose a topic is, is told by topology.json and by markers; never by the beginning of its name."""

from __future__ import annotations

from streams import Grouped, Materialized, StreamsBuilder
from streams.application.markers import newest_marker
from streams.application.owned_topics import owned_topics
from streams.topology.manifest import manifest
from tests.application.cluster import CONTROL, Cluster, marker

PROGRAM = StreamsBuilder()
(
    PROGRAM.stream("in")
    .group_by_key()
    .count("n", Materialized(name="counts"))
    .to_stream()
    .group_by(lambda v: v, Grouped(name="again"))
    .count("m", Materialized(name="plain", logging=False))
)
KEPT = manifest(PROGRAM.build())
MADE = (
    "orders-in-commits",
    "orders-counts-changelog",
    "orders-again-repartition",
    "orders-again-repartition-commits",
)


def all_made() -> Cluster:
    cluster = Cluster().commit(MADE[0], "orders", ["counts"]).put(MADE[1], b"row").put(MADE[2])
    read = {"orders-again-repartition": "id"}
    return cluster.commit(MADE[3], "orders", query_id="query-2", topic_ids=read)


def neighbours(cluster: Cluster) -> Cluster:
    cluster.commit("orders-eu-in-commits", "orders-eu", ["counts"]).put("orders-eu-counts-changelog", b"row")
    return cluster.put("orders-eu-changelog", b"by a user").put("orders.in", b"an order")


def test_the_plan_tells_what_is_its_own() -> None:
    found = owned_topics("orders", KEPT, neighbours(all_made()), neighbours(all_made()))
    assert set(found.own) == set(MADE)
    assert found.foreign == {"orders-eu-counts-changelog": "orders-eu", "orders-eu-in-commits": "orders-eu"}
    assert found.unproven == ("orders-eu-changelog",)


def test_markers_alone_tell_as_much() -> None:
    cluster = neighbours(all_made())
    assert set(owned_topics("orders", None, cluster, cluster).own) == set(MADE)


def test_markers_tell_the_topics_of_an_unfinished_rescale() -> None:
    during = {"orders-in-rescale", "orders-counts-changelog-rescale"}
    cluster = neighbours(all_made()).put("orders-eu-in-rescale", b"note")
    for topic in during:
        cluster.put(topic, b"row")
    assert set(owned_topics("orders", None, cluster, cluster).own) == {*MADE, *during}


def test_what_an_old_program_left_is_proven_by_its_markers() -> None:
    cluster = all_made().commit("orders-gone-commits", "orders", ["old"]).put("orders-old-changelog", b"row")
    found = owned_topics("orders", KEPT, cluster, cluster)
    assert set(found.own) == {*MADE, "orders-gone-commits", "orders-old-changelog"}


def test_markers_of_older_versions_count_with_topology_json_only() -> None:
    cluster = Cluster().commit(MADE[0], "", ["counts"]).put(MADE[1]).put("orders-eu-in-commits", b"no marker at all")
    assert owned_topics("orders", None, cluster, cluster).unproven == (
        "orders-counts-changelog",
        "orders-eu-in-commits",
        "orders-in-commits",
    )
    assert set(owned_topics("orders", KEPT, cluster, cluster).own) == {MADE[0], MADE[1]}


def test_another_applications_markers_win_over_the_plan() -> None:
    cluster = Cluster().commit(MADE[0], "orders-in", ["x"]).commit("orders-x-commits", "orders-x", [])
    cluster.put("orders-in-x-changelog").put(MADE[1], b"row")
    found = owned_topics("orders", KEPT, cluster, cluster)
    assert set(found.own) == {MADE[1]}
    assert set(found.foreign) == {MADE[0], "orders-x-commits", "orders-in-x-changelog"}


def test_a_repartition_topic_of_another_application_may_be_an_input() -> None:
    read = {"orders-eu-x-repartition": "id"}
    cluster = Cluster().commit("orders-orders-eu-x-repartition-commits", "orders", topic_ids=read)
    cluster.put("orders-eu-x-repartition", b"row")
    found = owned_topics("orders", None, cluster, cluster)
    assert set(found.own) == {"orders-orders-eu-x-repartition-commits"}


def test_the_newest_marker_is_found_behind_what_transactions_leave() -> None:
    first, last = marker("app", version=1), marker("app", version=2)
    cluster = Cluster().put("c", first.to_bytes(), last.to_bytes(), *[CONTROL] * 700).put("empty", *[CONTROL] * 40)
    assert newest_marker(cluster, ("c", 0)) == last
    assert newest_marker(cluster, ("empty", 0)) is None
    assert newest_marker(Cluster().put("c"), ("c", 0)) is None
