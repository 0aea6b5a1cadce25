"""A lake sink writes each record once, whatever dies or is lost between two steps; what it cannot make good it refuses."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import orjson
import pytest
from delta.exceptions import captured
from hypothesis import given
from hypothesis import strategies as st

from streams import Consumed, JsonSerde, StreamsBuilder, StringSerde, Topology
from streams.checkpoint.files import Checkpoint
from streams.driver.lake.delta_table import _CONFLICTS
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.errors import LakeConflictError, LakePositionError
from streams.lake.commit import HandedOver, SavedCommit, SinkCommit, TopicLog, check_handed_over, newest
from tests.both_ways import Fed, check_both_ways
from tests.lake.model import SINK, DriverDied, ModelSink, ModelTable, ModelTopic, conflict, died
from tests.operators.both_ways import examples


@pytest.fixture
def sink() -> ModelSink:
    found = ModelSink()
    found.topic.append(10)
    return found


def rows_of(sink: ModelSink) -> list[str]:
    return [record for of in sink.topic.records for record in of]


def test_a_run_writes_everything_and_deletes_it_from_the_topic(sink: ModelSink) -> None:
    sink.run()
    assert sink.table.rows == rows_of(sink)
    assert sink.topic.begins == [5, 5]


def test_the_next_run_continues_where_the_table_ends(sink: ModelSink) -> None:
    sink.run(records=2)
    sink.topic.append(4)
    sink.run()
    assert sorted(sink.table.rows) == sorted(rows_of(sink))


def test_a_start_without_rows_adds_no_commit_to_the_table(sink: ModelSink) -> None:
    sink.run()
    writer, commits = sink.writer(), len(sink.table.metadata)
    writer.write([], writer.at.position)
    assert len(sink.table.metadata) == commits


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_driver_that_dies_before_or_after_the_commit_writes_no_record_twice(sink: ModelSink, step: str) -> None:
    setattr(sink.table, step, died)
    with pytest.raises(DriverDied):
        sink.run()
    setattr(sink.table, step, lambda: None)
    sink.run()
    assert sorted(sink.table.rows) == sorted(rows_of(sink))


def test_a_commit_that_has_only_seemed_to_fail_is_not_repeated(sink: ModelSink) -> None:
    def lost_answer() -> None:
        sink.table.after = lambda: None
        raise OSError("the answer of the storage was lost")

    sink.table.after = lost_answer
    sink.run()
    assert sink.table.rows == rows_of(sink)


def test_a_failure_without_a_commit_is_raised_and_moves_nothing(sink: ModelSink) -> None:
    def full() -> None:
        raise OSError("no space left")

    sink.table.before = full
    writer = sink.writer()
    with pytest.raises(OSError, match="no space"):
        sink.write(writer)
    assert writer.at.version == 0
    assert sink.topic.begins == [0, 0]


def test_the_copy_beside_the_checkpoint_may_be_lost(sink: ModelSink) -> None:
    sink.run()
    sink.saved = None
    sink.topic.append(2)
    sink.run()
    assert sorted(sink.table.rows) == sorted(rows_of(sink))


def test_a_copy_that_is_older_than_the_table_decides_nothing(sink: ModelSink) -> None:
    sink.run(records=2)
    sink.saved = SavedCommit(SinkCommit(1, TopicOffsets("topic-1", (2, 2)), "attempt-1"), "table-1")
    sink.topic.append(2)
    sink.run()
    assert sorted(sink.table.rows) == sorted(rows_of(sink))


def test_the_copy_stands_in_for_commits_that_the_table_has_forgotten(sink: ModelSink) -> None:
    sink.run()
    sink.table.metadata = [None] * 5  # commits of others; the own ones are older than delta.logRetentionDuration
    sink.topic.append(2)
    sink.run()
    assert sorted(sink.table.rows) == sorted(rows_of(sink))


@pytest.mark.parametrize("table_id", ["table-2", ""])
@pytest.mark.parametrize("saved", [True, False])
def test_a_table_that_was_dropped_or_made_anew_is_refused(sink: ModelSink, saved: bool, table_id: str) -> None:
    sink.run()
    sink.table = ModelTable(table_id)
    sink.saved = sink.saved if saved else None
    with pytest.raises(LakePositionError, match=r"Put (the old|that) table back"):
        sink.run()
    assert sink.table.rows == []


def test_a_table_that_was_rolled_back_is_refused_if_records_are_gone(sink: ModelSink) -> None:
    sink.run(records=2)
    del sink.table.metadata[1:]
    with pytest.raises(LakePositionError, match=r"up to offset 2, but the topic begins at 5: the 3 offsets between"):
        sink.run()


def test_an_internal_topic_that_was_made_anew_is_refused(sink: ModelSink) -> None:
    sink.run()
    sink.topic = ModelTopic("topic-2")
    sink.topic.append(4)
    with pytest.raises(
        LakePositionError,
        match=r"Delete the table, and the position if that is kept elsewhere \(docs/sinks\.md\), to write to an empty one",
    ):
        sink.run()


def test_after_a_reset_a_new_table_gets_everything(sink: ModelSink) -> None:
    sink.run()
    sink.topic, sink.table = ModelTopic("topic-2"), ModelTable("table-2")
    sink.topic.append(4)
    sink.run()
    assert sink.table.rows == rows_of(sink)


def test_an_internal_topic_that_has_lost_records_is_refused(sink: ModelSink) -> None:
    sink.run()
    sink.topic.records = [[], []]
    with pytest.raises(LakePositionError, match="the topic has lost records"):
        sink.run()


def test_new_partitions_of_the_internal_topic_are_read_from_their_beginning(sink: ModelSink) -> None:
    sink.run()
    sink.topic.records.append(["2-0"])
    sink.topic.begins.append(0)
    sink.run()
    assert sink.table.rows[-1] == "2-0"


def test_two_instances_never_write_a_record_twice(sink: ModelSink) -> None:
    one, other = sink.writer(), sink.writer()
    sink.write(one, records=2)
    sink.topic.begins = [0, 0]  # the other one has read before the first one deleted
    with pytest.raises(LakeConflictError, match="another instance of the application has written commit 1"):
        sink.write(other, records=3)
    sink.write(one)
    assert sorted(sink.table.rows) == sorted(rows_of(sink))


def test_another_writer_that_is_faster_costs_another_try(sink: ModelSink) -> None:
    tries = iter([conflict, conflict, lambda: None])
    sink.table.before = lambda: next(tries)()
    sink.run()
    assert sink.table.rows == rows_of(sink)
    assert sink.pauses == [0.5, 1.0]


def test_writers_that_are_always_faster_end_the_sink_at_last(sink: ModelSink) -> None:
    sink.table.before = conflict
    with pytest.raises(LakeConflictError, match=r"faster 6 times in a row.*ConcurrentAppendException"):
        sink.run()
    assert sink.table.rows == []


def test_a_table_that_skips_an_unknown_version_is_an_error_and_no_loss(sink: ModelSink) -> None:
    sink.table.transactions[SINK.transactions("topic-1")] = 7  # its history is gone, and so is the copy
    with pytest.raises(LakeConflictError, match="takes no commit with the version 1"):
        sink.run()
    assert sink.topic.begins == [0, 0]


def test_commits_of_others_and_of_other_sinks_are_passed_over() -> None:
    mine = SinkCommit(3, TopicOffsets("topic-1", (4, 5)), "a")
    texts = [
        None,
        "",
        "nightly job",
        '{"streams_on_spark": 1}',
        mine.text(replace(SINK, sink="other")),
        mine.text(SINK),
    ]
    assert newest(texts, SINK) == mine


LOG = TopicLog("internal", "topic-1", [0, 0], [9, 9])
NOTE = HandedOver("internal", "topic-1", 3, (5, 6), (4, 6), {"conf": {"a": "b"}})


def spark_has(logged: int, *ends: int, topic_id: str = "topic-1") -> Checkpoint:
    """A checkpoint whose last batch is not confirmed, and ends at these offsets."""
    end = SourceOffsets({"internal": TopicOffsets(topic_id, ends)})
    return Checkpoint("query", logged, logged - 1, {logged: end} if ends else {})


def test_the_note_of_a_batch_comes_back_from_the_groups_offsets() -> None:
    found = HandedOver.of_group(NOTE.to_group(), LOG)
    assert found is not None
    assert found == replace(NOTE, end=[5, 6], done=[4, 6])
    assert HandedOver.of_group(NOTE.to_group(), replace(LOG, topic_id="topic-2")) is None
    assert HandedOver.of_group({("internal", 0): (7, "")}, LOG) is None
    # confluent-kafka may read on behind the metadata of an offset.
    followed = {place: (at, f"{text}1\ufffd}}") for place, (at, text) in NOTE.to_group().items()}
    assert HandedOver.of_group(followed, LOG) == found
    grown = replace(LOG, begins=[0, 0, 0], ends=[9, 9, 9])
    more = HandedOver.of_group(NOTE.to_group(), grown)
    assert more is not None
    assert {at for at, _ in more.calls(4, (7, 7, 7), {}).returned().to_group().values()} == {7}


@pytest.mark.parametrize(
    ("checkpoint", "note", "said"),
    [
        (Checkpoint(), None, "is missing, but records have been sent to it before"),
        (Checkpoint(), NOTE, "is missing, but batch 3 was handed over last"),
        (spark_has(2, 5, 6), NOTE, "ends with batch 2, but batch 3"),
        (spark_has(3, 5, 7), NOTE, "has other rows for batch 3"),
    ],
)
def test_a_checkpoint_that_would_give_a_number_to_other_rows_is_refused(
    checkpoint: Checkpoint, note: HandedOver | None, said: str
) -> None:
    with pytest.raises(LakePositionError, match=said):
        check_handed_over(SINK, checkpoint, note, LOG)


@pytest.mark.parametrize(
    ("checkpoint", "note", "log"),
    [
        (Checkpoint(), None, replace(LOG, ends=[0, 0])),
        (Checkpoint(), replace(NOTE, batch=-1), LOG),
        (spark_has(7, 8, 8), None, LOG),
        (spark_has(3, 5, 6), NOTE, LOG),
        (spark_has(4), NOTE, LOG),
    ],
    ids=["first start", "ended before the first batch", "of an earlier version", "repeats", "next"],
)
def test_a_checkpoint_that_fits_is_continued(checkpoint: Checkpoint, note: HandedOver | None, log: TopicLog) -> None:
    check_handed_over(SINK, checkpoint, note, log)


def test_an_earlier_version_s_checkpoint_becomes_the_note() -> None:
    ends = {n: SourceOffsets({"internal": TopicOffsets("topic-1", (n, n + 1))}) for n in (4, 5)}
    note = HandedOver.of_checkpoint(Checkpoint("query", 5, 4, ends), LOG)
    assert (note.batch, note.end, note.done) == (5, (5, 6), (4, 5))


faults = st.sampled_from(["none", "before", "after", "conflict", "seems to fail"])
losses = st.sampled_from(["nothing", "the copy", "the purge"])


@given(st.lists(st.tuples(faults, losses, st.integers(0, 6), st.integers(1, 3)), max_size=12))
def test_any_history_of_faults_ends_with_each_record_once(history: list[tuple[str, str, int, int]]) -> None:
    sink = ModelSink()
    for fault, loss, records, batch in history:
        sink.topic.append(records)
        before, begins = sink.saved, list(sink.topic.begins)
        hits = iter([True])

        def strike(kind: str = fault, hits: object = hits) -> None:
            if next(hits, False):  # type: ignore[call-overload]
                if kind == "conflict":
                    conflict()
                elif kind == "seems to fail":
                    raise OSError("the answer was lost")
                elif kind != "none":
                    died()

        place = "before" if fault in ("before", "conflict") else "after"
        setattr(sink.table, place, strike)
        with suppress(DriverDied):
            sink.run(batch)
        setattr(sink.table, place, lambda: None)
        if loss == "the copy":
            sink.saved = before
        if loss == "the purge":
            sink.topic.begins = begins
    sink.run()
    assert sorted(sink.table.rows) == sorted(rows_of(sink))


# --- Every conflict that Delta raises in Python counts as one.

RAISED = [
    found for name, found in vars(captured).items() if name.endswith("Exception") and name.startswith(("Con", "M", "P"))
]


@pytest.mark.parametrize("raised", RAISED, ids=lambda raised: raised.__name__)
def test_what_delta_raises_is_a_conflict(raised: type[Exception]) -> None:
    assert issubclass(raised, _CONFLICTS)


def test_delta_raises_several_kinds() -> None:
    assert {"ConcurrentAppendException", "ConcurrentTransactionException", "MetadataChangedException"} <= {
        raised.__name__ for raised in RAISED
    }


# --- Rows of a step's records made together are those made one by one, and so are the records that do not fit.

VALUES = [{"n": 1, "note": "a"}, {"n": 2}, {"n": "many"}, {"note": "b"}, 5, None]

records = st.lists(
    st.builds(
        lambda key, value, time: Fed("in", key, None if value is None else orjson.dumps(value), time, (("h", b"1"),)),
        st.sampled_from([b"a", b"b", None]),
        st.sampled_from(VALUES),
        st.integers(0, 20),
    ),
    max_size=8,
)


def program(mode: str) -> Topology:
    builder = StreamsBuilder()
    once = builder.stream("in", Consumed(StringSerde(), JsonSerde())).deduplicate(3)
    schema = {"n": int, "note": str | None}
    once.to_delta("/lake/rows", "append" if mode == "append" else "upsert", schema=schema)
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "dlq", "fail"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
@examples
@given(steps=st.lists(records, min_size=1, max_size=3))
def test_rows_and_errors_are_the_same_both_ways(mode: str, policy: str, steps: list[list[Fed]]) -> None:
    more = {"dead_letter_topic": "dead"} if policy == "dlq" else {}
    check_both_ways(program(mode), steps, restarts=[0], processing=policy, **more)
