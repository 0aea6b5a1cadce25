"""What a new checkpoint is made of; and wherever making it is interrupted, it is carried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from state.commit.decide import Decision, decide
from state.commit.marker import LIVE_FORMAT, CommitMarker
from state.errors import CheckpointMismatchError, FencedError
from streams.application.adopt import GivenPositions, reading_positions, take_over
from streams.checkpoint.compare import Adoption, Markers, check_checkpoint, check_topic, plan_adoption, position
from streams.checkpoint.files import Checkpoint, LocalFiles, read_checkpoint
from streams.engine.source.offsets import FirstBatch, SourceOffsets, TopicOffsets, batch_digest
from streams.errors import ConfigError
from tests.checkpoint.made import SUB, Made, at, made_marker

ENDS = [at(2, 3), at(4, 3), at(9, 8)]


def half_committed() -> dict[int, CommitMarker | None]:
    """Task 0 has committed micro-batch 2, of which it got records of both partitions; task 1 has not."""
    made = Made(Path(), ENDS, 2)
    return {0: made.marker(0, 2, version=4), 1: made.marker(1, 0, version=1)}


def plan(markers: Markers, query_id: str = "new") -> Adoption:
    return plan_adoption(SUB, markers, {"in": "id"}, {("in", 0): 9, ("in", 1): 3}, {}, query_id)


def test_the_last_micro_batch_is_repeated_over_the_same_ranges() -> None:
    markers = half_committed()
    adoption = plan(markers)
    # As far ahead as then: what was turned away is turned away again.
    assert (adoption.first.start, adoption.first.end) == (at(4, 3), replace(at(9, 8), now_ms=9))
    digest = batch_digest(at(4, 3), at(9, 8))
    for task, expected in ((0, Decision.SKIP), (1, Decision.RUN)):
        old = markers[task]
        assert old is not None
        new = adoption.marker(old)
        assert replace(new, query_id="query", adopted=0, batch_id=old.batch_id, batch=old.batch) == old
        assert decide(SUB.task(task, "new"), 0, digest, None, new) is expected
    assert Adoption.from_json(adoption.to_json()) == adoption


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_complete_micro_batch_is_not_repeated(confirmed: bool) -> None:
    """Its records may be deleted already, and a changed program may route them otherwise."""
    markers = half_committed()
    if not confirmed:
        markers[1] = Made(Path(), ENDS, 2).marker(1, 2, version=2)
    adoption = plan_adoption(SUB, markers, {"in": "id"}, {("in", 0): 9, ("in", 1): 3}, {}, "new", confirmed)
    assert (adoption.first.start, adoption.first.end) == (at(9, 8), at(9, 8))
    digest = batch_digest(at(9, 8), at(12, 8))
    for old in filter(None, markers.values()):
        new = adoption.marker(old)
        assert (new.version, new.ranges) == (old.version, {})
        assert decide(SUB.task(old.task, "new"), 0, digest, None, new) is Decision.RUN


def test_records_that_the_last_micro_batch_has_read_for_no_task_stay_unread() -> None:
    """Task 1 had records of partition 1 only: none of it is committed, so it is read with the next micro-batch."""
    first = half_committed()[0]
    assert first is not None
    markers = {**half_committed(), 0: replace(first, ranges={"in": {"0": (4, 9)}})}
    adoption = plan(markers)
    assert (adoption.first.start, adoption.first.end) == (at(4, 3), replace(at(9, 3), now_ms=9))


def test_markers_that_contradict_each_other() -> None:
    markers = {0: made_marker(0, ranges={"in": {"0": (0, 5)}}), 1: made_marker(1, ranges={"in": {"0": (0, 6)}})}
    with pytest.raises(CheckpointMismatchError, match="different ranges of in-0"):
        plan(markers)


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Dying:
    """Counts what changes something outside of the process, and dies before the n-th of it."""

    left: int
    happened: int = 0

    def reach(self) -> None:
        if self.left == self.happened:
            raise Killed
        self.happened += 1


class DyingFiles(LocalFiles):
    """Files of a process that may die."""

    def __init__(self, folder: Path, dying: Dying) -> None:
        super().__init__(str(folder))
        self._dying = dying

    def write(self, path: str, data: bytes) -> None:
        self._dying.reach()
        super().write(path, data)

    def move(self, path: str, to: str) -> None:
        self._dying.reach()
        super().move(path, to)


@dataclass
class Topic:
    """A commits topic."""

    last: dict[int, CommitMarker | None]
    dying: Dying = field(default_factory=lambda: Dying(-1))
    fails: Callable[[], None] = lambda: None

    def fenced(self) -> dict[int, CommitMarker | None]:
        return dict(self.last)

    def replace(self, task: int, expected: CommitMarker, marker: CommitMarker, offsets: object) -> bool:
        self.dying.reach()
        self.fails()
        if self.last[task] != expected:
            return False
        self.last[task] = marker
        return True


def adopt(files: LocalFiles, topic: Topic, query_id: str) -> None:
    take_over(files, SUB, topic, lambda markers: plan(markers, query_id), lambda text: None)


@pytest.mark.parametrize("steps", range(7))
def test_killed_anywhere_it_is_carried_on(tmp_path: Path, steps: int) -> None:
    old = Made(tmp_path, ENDS, 2)
    old.write()
    topic = Topic(half_committed(), Dying(steps))
    if steps < 6:
        with pytest.raises(Killed):
            adopt(DyingFiles(tmp_path, topic.dying), topic, "first")
    else:
        adopt(DyingFiles(tmp_path, topic.dying), topic, "first")
        assert topic.dying.happened == 6, "two files, two markers, two folders"
        return
    assert topic.dying.happened == steps
    topic.dying = Dying(-1)
    adopt(LocalFiles(str(tmp_path)), topic, "second")
    files = LocalFiles(str(tmp_path))
    checkpoint = read_checkpoint(files, "in")
    # Once it is written down, the plan stays the same one.
    assert checkpoint.query_id == ("second" if steps < 2 else "first")
    assert checkpoint.first == plan(half_committed()).first
    check_checkpoint(SUB, checkpoint, topic.last)
    check_topic(SUB, checkpoint, topic.last)
    assert {task: (m.batch_id, m.version, m.adopted) for task, m in topic.last.items() if m} == {
        0: (0, 4, 4),
        1: (-1, 1, 1),
    }
    # The old one is still there.
    assert [name.partition("~replaced-")[0] for name in files.names("")] == ["in", "in"]


def test_a_plan_that_the_application_has_overtaken(tmp_path: Path) -> None:
    """The right checkpoint was put back and has run on: so the plan is for nothing, and another one is made."""
    Made(tmp_path, ENDS, 2).write()
    topic = Topic(half_committed(), Dying(2))
    with pytest.raises(Killed):
        adopt(DyingFiles(tmp_path, topic.dying), topic, "first")
    topic.dying = Dying(-1)
    first = topic.last[0]
    assert first is not None
    topic.last[0] = replace(first, version=5)
    adopt(LocalFiles(str(tmp_path)), topic, "second")
    assert {marker.query_id for marker in topic.last.values() if marker} == {"second"}


def test_an_application_that_runs(tmp_path: Path) -> None:
    Made(tmp_path, ENDS, 2).write()

    def fenced() -> None:
        raise FencedError("fenced")

    with pytest.raises(CheckpointMismatchError, match="task 0 "):
        adopt(LocalFiles(str(tmp_path)), Topic(half_committed(), fails=fenced), "first")
    topic = Topic(half_committed())
    seen = topic.fenced()
    topic.last[1] = made_marker(1, version=2)
    topic.fenced = lambda: seen  # type: ignore[method-assign]
    with pytest.raises(CheckpointMismatchError, match="task 1 "):
        adopt(LocalFiles(str(tmp_path)), topic, "first")


@dataclass
class FakeAdmin:
    """Two partitions of `in` with records [2, 10)."""

    group: dict[tuple[str, int], int] = field(default_factory=dict)
    begin: int = 2
    end: int = 10

    def group_offsets(self, group: str, partitions: Any = None) -> dict[tuple[str, int], int]:
        return self.group

    def begin_offsets(self, partitions: Any) -> dict[tuple[str, int], int]:
        return dict.fromkeys(partitions, self.begin)

    def end_offsets(self, partitions: Any) -> dict[tuple[str, int], int]:
        return dict.fromkeys(partitions, self.end)


def positions(admin: FakeAdmin, *said: str, known: Any = None, checkpoint: Checkpoint | None = None) -> list[int]:
    places = [("in", 0), ("in", 1)]
    given = GivenPositions.parse(said)
    return list(reading_positions(admin, "app", places, known or {}, checkpoint or Checkpoint(), given).values())


def test_where_reading_goes_on() -> None:
    committed = FakeAdmin({("in", 0): 7, ("in", 1): 10})
    assert positions(committed) == [7, 10]
    # What the last micro-batch has read counts more: whoever reports a partition's position may not have committed it.
    assert positions(committed, known={("in", 0): 4}) == [4, 10]


def test_live_steps_say_where_reading_continues_also_in_topics_that_the_checkpoint_does_not_know() -> None:
    checkpoint = Checkpoint("query", first=FirstBatch(at(4, 3)))
    one = replace(
        made_marker(0),
        format=LIVE_FORMAT,
        ranges={"in": {"0": (4, 7)}, "new": {"0": (0, 2)}},
        topic_ids={"in": "id", "new": "new id"},
    )
    found = position(checkpoint, {0: one, 1: None})
    assert found == SourceOffsets({**at(7, 3).topics, "new": TopicOffsets("new id", (2,))})
    assert position(checkpoint, {0: made_marker(0), 1: None}) == at(4, 3)


def test_an_unknown_position_must_be_given() -> None:
    admin = FakeAdmin({("in", 0): 7})
    with pytest.raises(ConfigError, match=r"no committed offset for in-1 \[2, 10\).*--position in:1=OFFSET"):
        positions(admin)
    assert positions(admin, "in:1=5") == [7, 5]
    assert positions(admin, "in=earliest") == [7, 2]
    assert positions(admin, "in=latest") == [7, 10]
    with pytest.raises(ConfigError, match="has committed its position there"):
        positions(admin, "in:0=5", "in:1=5")
    for wrong in ("in", "in:1", "in:x=1", "in:1=-1", "in=somewhere", "=1"):
        with pytest.raises(ConfigError, match="TOPIC:PARTITION=OFFSET"):
            GivenPositions.parse([wrong])


def test_an_empty_or_fully_read_partition_needs_no_given_position() -> None:
    assert positions(FakeAdmin(begin=10)) == [10, 10]
    old = Checkpoint("query", logged=1, offsets={1: at(10, 10)})
    assert positions(FakeAdmin(), checkpoint=old) == [10, 10]
    with pytest.raises(ConfigError, match="in-0"):
        positions(FakeAdmin(), checkpoint=replace(old, offsets={1: at(9, 10)}))
