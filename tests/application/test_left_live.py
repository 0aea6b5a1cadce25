"""What Kafka, `streams status` and the doctor say of a sub-topology that had to leave live execution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from state.changelog import pauses_topic
from state.commit.marker import MARKER_KEY, format_of
from state.kafka.topics import TopicSpec
from streams.application.doctor.inspection import Severity
from streams.application.status import application_status
from streams.cli.status import _left_live, as_dict
from streams.engine.source.pauses import NOTHING, LeftLive, left_live_record, pauses_in
from tests.application.cluster import marker
from tests.doctor.world import APP, NOW_MS, World

LEFT = LeftLive(NOW_MS, "the record at in-1 offset 42 is where crc32 puts its key", "--placement crc32", ("in", 1, 42))
COMMAND = "streams rescale app.py -a app --placement crc32"


def noted(world: World, left: LeftLive | None) -> Any:
    """What the topic says of the application, with one more note."""
    topic = pauses_topic(APP)
    if topic not in world.kafka.topics:
        world.kafka.create_topics([TopicSpec(topic, 1)])
    world.kafka.append(topic, *left_live_record("in", left), partition=0)
    return pauses_in([world.kafka.columns(topic, 0)])


def test_a_note_comes_back_as_it_was_and_is_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path)
    other = LeftLive(7, "in has 3 partitions, and the sub-topology 2 tasks")
    assert noted(world, other).left_live == {"in": other}
    assert noted(world, LEFT)._replace(left_live={}) == NOTHING, "nothing is paused by it"
    assert noted(world, LEFT).left_live == {"in": LEFT}
    assert noted(world, None) == NOTHING._replace(left_live={})


def test_status_and_doctor_name_the_record_and_the_command(tmp_path: Path) -> None:
    world = World(tmp_path).run()
    pauses = noted(world, LEFT)
    world.cluster.advance(3 * 60_000)

    def status() -> Any:
        return application_status(world.plan()[0], world.kafka, world.kafka, world.cluster.now_ms, pauses)  # type: ignore[arg-type]

    (line,) = _left_live(status(), "app.py")
    assert line == (
        f"in has left live execution 3 min ago: {LEFT.why}. To run it live again: stop the application, `{COMMAND}`, and start it"
    )
    assert as_dict(status(), status())["sub_topologies"][0]["left_live"]["record"] == ("in", 1, 42)
    (found,) = world.findings()["execution"]
    assert (found.severity, found.command) == (Severity.NOTE, COMMAND)
    assert LEFT.why in found.says
    assert str(found.place) == "sub-topology in, topic in, partition 1, offset 42"


def test_what_runs_live_again_has_left_nothing(tmp_path: Path) -> None:
    world = World(tmp_path).run()
    pauses = noted(world, LEFT)
    _, prepared = world.plan()
    now = world.cluster.now_ms + 1
    live = marker(
        APP, ["counts"], tasks=2, topology_hash=prepared.sub.topology_hash, version=99, batch_id=-1, batch="", now_ms=now,
        ranges={"in": {"0": [0, 3]}}, format=format_of("murmur2", live=True),
    )  # fmt: skip
    world.kafka.append("app-in-commits", MARKER_KEY, live.to_bytes(), now, partition=0)
    status = application_status(world.plan()[0], world.kafka, world.kafka, now, pauses)  # type: ignore[arg-type]
    assert status.subs[0].execution == "live"
    assert list(_left_live(status, "app.py")) == []
    assert [one.says for one in world.findings().get("execution", [])] == []
