"""Whether a run over what is there has read all that its parts have written for each other; no Spark, no broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from state.kafka.topics import TopicInfo
from streams import StreamsBuilder
from streams.application.prepare import Application, PreparedSub
from streams.config import StreamsConfig
from streams.source.offsets import SourceOffsets, TopicOffsets
from streams.spark.progress import position_of, positions_of, sub_of
from streams.topology.plan import build_plan


class Admin:
    """Internal topics of two partitions that end at 7 and 9; and a group in which a stranger has committed."""

    def __init__(self, strangers: int) -> None:
        self.strangers = strangers

    def describe_topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo("id", 2) for name in names}

    def end_offsets(self, places: list[tuple[str, int]], committed: bool = True) -> dict[tuple[str, int], int]:
        assert not committed
        return {place: (7, 9)[place[1]] for place in places}

    def group_offsets(self, group: str, places: Any) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.strangers)


def unfinished(tmp_path: Path, strangers: int, read: Mapping[str, tuple[int, ...]]) -> list[str]:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count().to_stream().repartition().to("out")
    plan = build_plan(builder.build(), "app")
    config = StreamsConfig(application_id="app", bootstrap_servers="host:1", base_dir=tmp_path)
    application = Application(plan, config, tuple(PreparedSub(sub, 2) for sub in plan.sub_topologies))
    (internal,) = plan.repartition_topics
    (second,) = [sub.name for sub in plan.sub_topologies if sub.reads_internal]
    assert len(plan.sub_topologies) == 2
    positions = {
        name: SourceOffsets({internal: TopicOffsets("id", at)})
        for name, at in zip([second], read.values(), strict=False)
    }
    found = application.unfinished(Admin(strangers), positions)  # type: ignore[arg-type]
    return ["second" if prepared.sub.name == second else prepared.sub.name for prepared in found]


def test_what_the_query_has_read_counts_and_not_what_anybody_has_committed(tmp_path: Path) -> None:
    for strangers in (0, 1_000):
        assert unfinished(tmp_path, strangers, {"second": (7, 9)}) == []
        assert unfinished(tmp_path, strangers, {"second": (7, 8)}) == ["second"]
        # Of a query that has told nothing, nobody knows: it runs once more, and a run without steps is the last one.
        assert unfinished(tmp_path, strangers, {}) == ["second"]


def test_the_position_of_a_query_as_spark_tells_it() -> None:
    at = SourceOffsets({"in": TopicOffsets("id", (3,))})
    progress = {"name": "app/in", "sources": [{"endOffset": at.to_json()}]}
    assert (sub_of(progress), position_of(progress)) == ("in", at)
    assert position_of({"name": "app/in", "sources": [{"endOffset": None}]}) is None
    assert position_of(None) is None
    # A query that reads no topics, such as a Delta table's, has offsets of another kind.
    delta = {"reservoirVersion": 3, "index": -1}
    assert position_of({"name": "app/orders", "sources": [{"endOffset": delta}]}) is None
    assert positions_of(delta, delta) == {}
