"""How far lake sinks are, told from what Kafka and the checkpoint know. (Kafka is simulated, the checkpoint is made by hand.)"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from streams.application.status import SinkStatus, sink_statuses
from streams.lake.commit import TABLE_COMMIT, SinkCommit, SinkId
from streams.source.offsets import SourceOffsets, TopicOffsets
from streams.source.pauses import NOTHING, WHOLE, Pauses
from streams.testing.simulation import SimulatedKafka
from streams.topology.graph import DeltaTable, InternalTopic, LakeSink

TOPIC = InternalTopic("out").topic_name("app")
PLACE = (TOPIC, 0)


@pytest.fixture
def kafka() -> SimulatedKafka:
    """The internal topic of the sink, with the offsets 4 to 10."""
    made = SimulatedKafka({TOPIC: 1})
    for number in range(10):
        made.append(TOPIC, b"k", b"v", number)
    made.delete_records({PLACE: 4})
    return made


def look(kafka: SimulatedKafka, checkpoint_dir: str, *, delta: bool, pauses: Pauses = NOTHING) -> SinkStatus:
    target: Any = DeltaTable("/lake/out", is_path=True) if delta else print
    layout: Any = None
    sink = LakeSink("out", InternalTopic("out"), layout, target)
    config = SimpleNamespace(application_id="app", checkpoint_dir=checkpoint_dir)
    application: Any = SimpleNamespace(
        config=config, plan=SimpleNamespace(topology=SimpleNamespace(lake_sinks={"out": sink}))
    )
    admin: Any = kafka
    (found,) = sink_statuses(application, admin, pauses)
    return found


def spark_has(folder: Path, committed: int, *ends: int, topic_id: str) -> None:
    """Writes the checkpoint of the sink's query: the end of each batch, and which one is confirmed."""
    for name in ("offsets", "commits"):
        (folder / "out" / name).mkdir(parents=True)
    (folder / "out" / "metadata").write_bytes(orjson.dumps({"id": "query"}))
    for batch, end in enumerate(ends):
        offsets = orjson.dumps(SourceOffsets({TOPIC: TopicOffsets(topic_id, (end,))}).to_json()).decode()
        (folder / "out" / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offsets}")
    for batch in range(committed + 1):
        (folder / "out" / "commits" / str(batch)).write_text("v1\n{}")


def id_of(kafka: SimulatedKafka) -> str:
    return kafka.describe_topics([TOPIC])[TOPIC].topic_id


def test_the_lag_of_a_table_is_what_was_not_deleted_from_its_topic(kafka: SimulatedKafka, tmp_path: Path) -> None:
    for checkpoint in (str(tmp_path), "s3a://elsewhere"):
        found = look(kafka, checkpoint, delta=True)
        assert (found.lag, found.at_most, found.read) == (6, False, {PLACE: 4})
        assert found.target == "delta table /lake/out"


@pytest.mark.parametrize(("topic", "lag"), [("this", 2), ("deleted by a reset", 6)])
def test_the_last_commit_of_a_table_counts_before_its_rows_are_deleted(
    kafka: SimulatedKafka, tmp_path: Path, topic: str, lag: int
) -> None:
    position = TopicOffsets(id_of(kafka) if topic == "this" else topic, (8,))
    saved = {"table_id": "id", **SinkCommit(3, position, "attempt").to_json(SinkId("app", "out"))}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / TABLE_COMMIT).write_bytes(orjson.dumps(saved))
    assert look(kafka, str(tmp_path), delta=True).lag == lag


def test_a_batch_that_spark_has_confirmed_is_no_lag_of_a_function(kafka: SimulatedKafka, tmp_path: Path) -> None:
    spark_has(tmp_path, 1, 4, 9, 10, topic_id=id_of(kafka))
    found = look(kafka, str(tmp_path), delta=False)
    assert (found.lag, found.at_most) == (1, False)
    assert found.target == "function print"


@pytest.mark.parametrize("where", ["elsewhere", "missing", "damaged", "of another topic"])
def test_without_its_checkpoint_the_lag_of_a_function_is_at_most_what_its_topic_has(
    kafka: SimulatedKafka, tmp_path: Path, where: str
) -> None:
    if where not in ("elsewhere", "missing"):
        spark_has(tmp_path, 0, 10, topic_id="another" if where == "of another topic" else id_of(kafka))
    if where == "damaged":
        (tmp_path / "out" / "offsets" / "0").write_text("v1")
    found = look(kafka, "s3a://elsewhere" if where == "elsewhere" else str(tmp_path), delta=False)
    assert (found.lag, found.at_most) == (6, True)


def test_what_was_handed_over_is_noted_in_the_group(kafka: SimulatedKafka) -> None:
    kafka.groups["app"] = {PLACE: 9}
    found = look(kafka, "s3a://elsewhere", delta=False)
    assert (found.lag, found.at_most) == (1, False)


def test_a_paused_sink_says_since_when(kafka: SimulatedKafka, tmp_path: Path) -> None:
    assert look(kafka, str(tmp_path), delta=True, pauses=Pauses({WHOLE: 7})).paused_since_ms == 7
    assert look(kafka, str(tmp_path), delta=True, pauses=Pauses({"other": 7})).paused_since_ms is None


def test_a_sink_that_has_never_run_has_no_lag(tmp_path: Path) -> None:
    assert look(SimulatedKafka({}), str(tmp_path), delta=False).lag == 0
