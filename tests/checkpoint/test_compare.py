"""Checkpoints and markers that fit, and all the ways in which they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from state.commit.marker import LIVE_FORMAT, CommitMarker
from state.errors import CheckpointMismatchError
from streams.checkpoint.compare import (
    Markers,
    check_checkpoint,
    check_program,
    check_topic,
    plan_adoption,
    position,
)
from streams.checkpoint.files import (
    FIRST_BATCH,
    Checkpoint,
    LocalFiles,
    read_checkpoint,
    write_first_batch,
    write_query_id,
)
from streams.engine.source.offsets import FirstBatch, batch_digest
from streams.errors import DamagedCheckpointError
from tests.checkpoint.made import SUB, Made, at, made_marker

ENDS = [at(2, 3), at(4, 3), at(4, 6), at(9, 9)]
# Micro-batch 0 reads both partitions, 1 only that of task 0, 2 only that of task 1; 3 is logged and not confirmed.


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path, ENDS, committed=3)


def check(files: LocalFiles, *markers: CommitMarker | None) -> None:
    """All that is asked before the first micro-batch."""
    found = dict(enumerate(markers))
    check_program(SUB, found)
    checkpoint = read_checkpoint(files, "in", {marker.batch_id for marker in markers if marker})
    check_checkpoint(SUB, checkpoint, found)
    check_topic(SUB, checkpoint, found)


@pytest.mark.parametrize("last", [(1, 2), (3, 2), (1, 3), (3, 3)])
def test_what_fits(made: Made, last: tuple[int, int]) -> None:
    """The last micro-batch may be committed by all tasks, by one, or by none."""
    check(made.write(), made.marker(0, last[0]), made.marker(1, last[1]))


def test_what_is_new_fits(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    check(files, None, None)
    write_first_batch(files, "in", FirstBatch(at(0, 0)))
    check(files, None, None)
    write_query_id(files, "in", "query")
    check(files, None, None)
    # There was nothing to read in the first micro-batch, so no task was called.
    check(Made(tmp_path, [at(0, 0)], committed=1).write(), None, None)


def test_a_marker_older_than_the_log_is_not_compared(made: Made) -> None:
    made.ends = [*ENDS[:2], *[ENDS[1]] * 20, at(4, 6)]
    made.committed = len(made.ends)
    files = made.write()
    for number in range(12):
        files.move(f"in/offsets/{number}", f"gone/{number}")
    check(files, made.marker(0, 1, batch="anything"), made.marker(1, len(made.ends) - 1))


Change = Callable[[Made, list[CommitMarker | None]], None]


def other_query(made: Made, markers: list[CommitMarker | None]) -> None:
    markers[1] = made.marker(1, 2, query_id="other")


def more_tasks(made: Made, markers: list[CommitMarker | None]) -> None:
    markers[1] = made.marker(1, 2, tasks=3)


def other_topology(made: Made, markers: list[CommitMarker | None]) -> None:
    markers[1] = made.marker(1, 2, topology_hash="other")


def rolled_back(made: Made, markers: list[CommitMarker | None]) -> None:
    markers[0] = made.marker(0, 3)
    made.ends, made.committed = ENDS[:3], 3


def rolled_back_and_gone_on(made: Made, markers: list[CommitMarker | None]) -> None:
    markers[0] = made.marker(0, 3)
    made.ends = [*ENDS[:3], at(7, 7)]


def first_rolled_back_and_gone_on(made: Made, markers: list[CommitMarker | None]) -> None:
    markers[:] = [made.marker(0, 0), None]
    made.ends, made.committed = [at(5, 5)], 0


def commits_lost(made: Made, markers: list[CommitMarker | None]) -> None:
    markers[:] = [None, None]


def commits_of_a_task_lost(made: Made, markers: list[CommitMarker | None]) -> None:
    markers[1] = None


def commits_cut_short(made: Made, markers: list[CommitMarker | None]) -> None:
    markers[1] = made.marker(1, 0)


def commits_of_a_task_without_recent_records_cut_short(made: Made, markers: list[CommitMarker | None]) -> None:
    """Only older micro-batches than the last two, and than those of the markers, have anything for that task."""
    made.ends = [at(2, 3), at(4, 6), *(at(4, end) for end in range(7, 11))]
    made.committed = 6
    markers[:] = [made.marker(0, 0), made.marker(1, 5)]


def tick_lost(made: Made, markers: list[CommitMarker | None]) -> None:
    made.ends = [*ENDS[:2], at(4, 6, tick=1), at(9, 9, tick=1)]
    markers[1] = made.marker(1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            other_query,
            "task 1 of 2 .* checkpoint other, this query runs on checkpoint query: the checkpoint was deleted",
        ),
        (more_tasks, "written by 3 tasks, this query has 2. .*Set tasks=3"),
        (other_topology, "written by another topology"),
        (
            rolled_back,
            "task 0 has committed micro-batch 3 .* only up to 2: it was rolled back.*`streams adopt .* -a app",
        ),
        (
            rolled_back_and_gone_on,
            "task 0 has committed micro-batch 3 .* other input ranges.*`streams adopt .* -a app",
        ),
        (first_rolled_back_and_gone_on, "task 0 has committed micro-batch 0 .* other input ranges"),
        (commits_lost, "nothing at all of task 1: the commits topic was deleted.*`streams reset app"),
        (commits_of_a_task_lost, "nothing at all of task 1: the commits topic was deleted"),
        (commits_cut_short, "micro-batch 0 as the last one of task 1: the commits topic was deleted"),
        (
            commits_of_a_task_without_recent_records_cut_short,
            "confirmed micro-batch 1, but the commits topic has micro-batch 0 as the last one of task 0",
        ),
        (tick_lost, "micro-batch 1 as the last one of task 0"),
    ],
)
def test_what_does_not_fit(made: Made, change: Change, words: str) -> None:
    markers: list[CommitMarker | None] = [made.marker(0, 1), made.marker(1, 2)]
    change(made, markers)
    with pytest.raises(CheckpointMismatchError, match=words) as caught:
        check(made.write(), *markers)
    assert "Nothing was written" in str(caught.value)


def test_a_lost_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMismatchError, match="there is no checkpoint, but 1 of 2 tasks have committed"):
        check(LocalFiles(str(tmp_path)), None, made_marker(1))


def test_a_first_batch_of_which_only_the_end_is_known(made: Made) -> None:
    """As an older version of the engine has begun it."""
    files = made.write()
    files.move(f"in/{FIRST_BATCH}", "aside")
    checkpoint = read_checkpoint(files, "in", {0})
    good = made.marker(0, 0, batch="any")
    check_checkpoint(SUB, checkpoint, {0: good})
    with pytest.raises(CheckpointMismatchError, match="other input ranges"):
        check_checkpoint(SUB, checkpoint, {0: replace(good, ranges={"in": {"0": (0, 1)}})})


def test_a_checkpoint_that_was_made_for_the_markers(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    first = FirstBatch(at(1, 1), at(2, 2))
    write_query_id(files, "in", "query")
    write_first_batch(files, "in", first)
    digest = batch_digest(at(1, 1), at(2, 2))
    markers: Markers = {0: made_marker(0, batch=digest, adopted=3), 1: made_marker(1, batch_id=-1, adopted=3)}
    check(files, *markers.values())
    # The file may go once that micro-batch is logged and confirmed, not before.
    files.move(f"in/{FIRST_BATCH}", "aside")
    with pytest.raises(CheckpointMismatchError, match=f"in/{FIRST_BATCH}, which describes it, is missing"):
        check(files, *markers.values())


@pytest.mark.parametrize(
    ("path", "data", "words"),
    [
        ("metadata", None, "in/metadata is missing"),
        ("metadata", b"", "in/metadata is cut short"),
        ("metadata", b'{"id":', "in/metadata is cut short"),
        ("offsets/3", b"", "in/offsets/3 is cut short"),
        ("offsets/3", b"v1\n{}", "in/offsets/3 is cut short"),
        ("offsets/3", b'v1\n{}\n{"format": 1,', "in/offsets/3 is cut short"),
        ("offsets/3", b'v1\n{}\n{"format": 1}', "in/offsets/3 is cut short"),
        ("offsets/2", None, "in/offsets/2 is missing"),
        ("commits/2", None, "in/commits/2 is missing"),
        ("commits/2", b"v1\n", "in/commits/2 is cut short"),
        ("commits/2", b"v9\n{}", "version v1"),
        ("commits/5", b"v1\n{}", "in/offsets/5 is missing"),
        (FIRST_BATCH, b"{", f"in/{FIRST_BATCH} cannot be read"),
    ],
)
def test_files_that_are_missing_or_cut_short(made: Made, path: str, data: bytes | None, words: str) -> None:
    files = made.write()
    if data is None:
        files.move(f"in/{path}", "aside")
    else:
        files.write(f"in/{path}", data)
    with pytest.raises(DamagedCheckpointError, match=words):
        read_checkpoint(files, "in")


def test_no_checkpoint_knows_nothing() -> None:
    assert (Checkpoint().digest(0), Checkpoint().ranges(3), Checkpoint().start(0)) == (None, None, None)


def live_marker(task: int, end: int) -> CommitMarker:
    ranges = {"in": {str(task): (end - 1, end)}}
    return made_marker(task, batch_id=-1, ranges=ranges, format=LIVE_FORMAT)


def test_reading_continues_where_live_steps_have_ended(tmp_path: Path) -> None:
    checkpoint = Checkpoint("query", first=FirstBatch(at(3, 5)))
    assert position(checkpoint, {0: None, 1: None}) == at(3, 5)
    assert position(checkpoint, {0: live_marker(0, 7), 1: None}) == at(7, 5)
    assert position(checkpoint, {0: live_marker(0, 7), 1: live_marker(1, 8)}) == at(7, 8)
    assert position(Checkpoint(), {0: None, 1: None}) is None


def test_adopting_live_steps_repeats_nothing() -> None:
    markers = {0: live_marker(0, 7), 1: live_marker(1, 8)}
    positions = {("in", 0): 6, ("in", 1): 7}
    adoption = plan_adoption(SUB, markers, {"in": "id"}, positions, {}, "new")
    assert (adoption.first, adoption.done) == (FirstBatch(at(7, 8), at(7, 8)), frozenset())
    assert not adoption.marker(markers[0]).live
