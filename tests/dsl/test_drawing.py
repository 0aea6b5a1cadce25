"""What a notebook and a Python shell show of a topology."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest

from streams import JoinWindows, Materialized, StreamJoined, StreamsBuilder, Topology
from streams.dsl.options import Grouped

SVG = "{http://www.w3.org/2000/svg}"


def clicks_per_user() -> Topology:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    clicks, views = builder.stream("clicks"), builder.stream("views")
    joined = clicks.filter(bool).join(views, lambda click, view: click, windows, StreamJoined(name="seen"))
    users = joined.select_key(lambda click: click["user"]).group_by_key(Grouped(name="by-user"))
    users.count(materialized=Materialized(name="counts")).to_stream().to("counts-per-user")
    joined.to("joined")
    builder.global_table("airports", materialized=Materialized(name="places"))
    return builder.build()


@pytest.fixture
def shown() -> dict[str, str]:
    return clicks_per_user()._repr_mimebundle_()


def texts(drawing: str) -> str:
    return "".join(found.text or "" for found in ElementTree.fromstring(drawing).iter(f"{SVG}text"))


def boxes(drawing: str) -> list[tuple[int, ...]]:
    found = ElementTree.fromstring(drawing).iter(f"{SVG}rect")
    drawn = [box for box in found if box.get("class") in ("topic", "reader", "task")]
    assert drawn
    return [tuple(int(box.get(side, "")) for side in ("x", "y", "width", "height")) for box in drawn]


def test_a_drawing_names_every_topic_operator_and_store(shown: dict[str, str]) -> None:
    said = texts(shown["image/svg+xml"])
    topology = clicks_per_user()
    topics = ("clicks", "views", "joined", "counts-per-user", "by-user-repartition", "airports")
    missing = [name for name in (*topics, *topology.nodes, *topology.stores) if name not in said]
    assert missing == []


def test_a_drawing_needs_no_network_and_no_script(shown: dict[str, str]) -> None:
    drawing = shown["text/html"].replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert [what for what in ("http", "<script", "href", "url(//", "@import") if what in drawing] == []


def test_boxes_do_not_overlap(shown: dict[str, str]) -> None:
    def overlap(one: Any, other: Any) -> bool:
        across = one[0] < other[0] + other[2] and other[0] < one[0] + one[2]
        return across and one[1] < other[1] + other[3] and other[1] < one[1] + one[3]

    assert [pair for pair in combinations(boxes(shown["image/svg+xml"]), 2) if overlap(*pair)] == []


def test_a_drawing_leaves_the_rest_of_the_page_as_it_is(shown: dict[str, str]) -> None:
    style = ElementTree.fromstring(shown["image/svg+xml"]).findtext(f"{SVG}style") or ""
    assert [rule for rule in style.split("}")[:-1] if not rule.startswith(".streams-topology ")] == []


def test_texts_are_escaped() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("a<b>|c&d")).to("out")
    assert "/a<b>|c&d/" in texts(builder.build()._repr_mimebundle_()["image/svg+xml"])


def test_a_notebook_that_draws_mermaid_gets_the_chart(shown: dict[str, str]) -> None:
    assert shown["text/vnd.mermaid"] == clicks_per_user().mermaid()


def test_a_topology_shows_in_one_line_what_it_reads_writes_and_keeps() -> None:
    assert repr(clicks_per_user()) == (
        "Topology(2 sub-topologies: clicks, views -> by-user-repartition, joined (2 stores); "
        "by-user-repartition -> counts-per-user (1 store); global tables: places)"
    )
