"""Where a run over what is there ends: positions that were known at its start, and what comes of the records before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from state.columns import RecordColumns
from streams import StreamsBuilder
from streams.engine.live.ends import RunEnd
from streams.engine.live.partitions import Ending
from streams.topology.plan import SubTopology, build_plan
from tests.live.test_task import APP, Arriving, World, copy

TopicPartition = tuple[str, int]
OUTSIDE: Mapping[TopicPartition, int] = {("in", 0): 5, ("in", 1): 0}
BETWEEN = f"{APP}-moved-repartition"


def offsets(pieces: Sequence[RecordColumns]) -> list[int]:
    return [offset for columns in pieces for offset in columns.offsets.tolist()]


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_a_partition_ends_before_an_offset(chunk: int) -> None:
    world = World(copy("in"))
    world.send("in", [(b"%d" % number, number) for number in range(5)])
    inner = Arriving(world.kafka, "in", 0, 1)
    reader, found = Ending(inner, 3), []
    for _ in range(5):
        inner.due = chunk
        found += offsets(reader.poll(100))
    assert (found, reader.position, reader.at_end) == ([1, 2], 3, True)
    reader.reopen()
    assert inner.reopened == 0, "what comes behind the end is not missed"


def test_a_task_commits_its_end_and_leaves_the_rest() -> None:
    world = World(copy("in"))
    world.send("in", [(b"%d" % number, number) for number in range(5)])
    world.job = replace(world.job, source=replace(world.job.source, until={("in", 0): 3}))
    with world.task() as task:
        world.run(task)
        assert task.read == task.positions == {("in", 0): 3}
    assert world.out() == [b"0", b"1", b"2"]
    world.job = replace(world.job, source=replace(world.job.source, until={("in", 0): 5}))
    with world.task() as task:
        world.run(task)
    assert world.out() == [b"0", b"1", b"2", b"3", b"4"]


def subs() -> Sequence[SubTopology]:
    """One that reads `in`, and one behind its repartition topic."""
    builder = StreamsBuilder()
    builder.stream("in").repartition(name="moved").to("out")
    return build_plan(builder.build(), APP).sub_topologies


def run_end() -> RunEnd:
    return RunEnd(subs(), OUTSIDE)


FIRST, BEHIND = (sub.name for sub in subs())


def test_a_run_ends_once_what_was_there_and_what_came_of_it_is_read() -> None:
    end, asked = run_end(), []
    written = {(BETWEEN, 0): 4}

    def ask(topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        asked.append(list(topics))
        return dict(written)

    assert not end.is_reached((), ask)
    end.hear(FIRST, [("in", 0, 4), ("in", 1, 0)])
    assert not end.is_reached((), ask)
    assert asked == [], "before the sources are read, nothing can be at its end"
    end.hear(FIRST, [("in", 0, 5)])
    assert not end.is_reached((), ask)
    assert not end.is_reached((), ask)
    assert asked == [[BETWEEN]], "an answer holds until it is reached"
    written[BETWEEN, 0] = 6
    end.hear(BEHIND, [(BETWEEN, 0, 4)])
    assert not end.is_reached((), ask)
    end.hear(BEHIND, [(BETWEEN, 0, 6)])
    assert end.is_reached((), ask)
    assert end.positions() == {FIRST: {("in", 0): (5, 5), ("in", 1): (0, 0)}, BEHIND: {(BETWEEN, 0): (6, 6)}}


def test_what_is_paused_is_left_to_another_run() -> None:
    end = run_end()
    end.hear(FIRST, [("in", 0, 5), ("in", 1, 0)])
    assert end.is_reached([BEHIND], lambda topics: {})
    assert not run_end().is_reached([BEHIND], lambda topics: {})
    assert run_end().is_reached([FIRST, BEHIND], lambda topics: {})
