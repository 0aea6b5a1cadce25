"""Bad records on real Kafka and Spark: each is a named error, a counted skip, or one dead letter in the transaction.

Each way into a task is tried: raw bytes (the task reads them), objects (the head has read them) and columns.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from state.changelog import commits_topic
from state.commit.marker import CommitMarker
from streams import (
    ApplicationFailedError,
    Consumed,
    KafkaStreams,
    Materialized,
    Processor,
    Record,
    Retry,
    StreamsBuilder,
    StringSerde,
    agg,
)
from streams.cli.main import app
from streams.drills.topics import Read
from streams.driver.progress import Progress
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import count_topology

LIMIT = 2_000
HOUR_MS = 3_600_000
GOOD = [(b"abc"[n % 3 : n % 3 + 1], n) for n in range(30)]
SKIP_ALL = dict.fromkeys(("deserialization", "processing", "production", "future"), "skip")
AS_BY_DEFAULT = {"message_timestamp_after_max_ms": str(HOUR_MS), "max_message_bytes": "1048588"}
"""What a topic of any other broker refuses; the embedded one takes every time."""


def bad(kind: str) -> Sent:
    """One bad record, under a key of its own."""
    value: dict[str, Any] = {"n": 1, "w": "x"}
    stamp = 5_000
    if kind == "json":
        return Sent(b"json", b"{no", stamp, 1, (("h", b"1"), ("empty", None)))
    if kind == "boom":
        value["boom"] = True
    elif kind == "big":
        value["w"] = "x" * LIMIT
    elif kind == "past":
        stamp = -1
    elif kind == "future":
        # More than a day, the default bound, and by that more than what topics take by default, an hour.
        stamp = int(time.time() * 1000) + 48 * HOUR_MS
    return Sent(kind.encode(), orjson.dumps(value), stamp, 1)


def _check(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value and value.get("boom"):
        raise ValueError("boom,\nin two lines")
    return value


def _add(value: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
    return {"n": total["n"] + value["n"], "w": value["w"]}


def topology_of(transport: str, source: str, target: str) -> Topology:
    """Sums per key, by way of each transport."""
    builder = StreamsBuilder()
    stream = builder.stream(source)
    # Only an aggregate with a cache takes columns: it emits the last update of a step.
    store = Materialized(name="sums", caching=transport == "columns")
    if transport == "columns":
        table = stream.group_by_key().aggregate(n=agg.sum("n"), w=agg.last("w"), materialized=store)
    else:
        if transport == "objects":
            stream = stream.map_values(_check).select_key(lambda key, value: key)
        grouped = stream.group_by_key()
        table = grouped.aggregate(lambda: {"n": 0}, lambda v, total: _add(_check(v) or {}, total), materialized=store)
    table.to_stream().to(target)
    return builder.build()


def good_records() -> list[Sent]:
    """Good ones, and two that every aggregate leaves out: without a key, without a value."""
    records = [Sent(key, orjson.dumps({"n": n, "w": "x"}), 1_000 + n, n % 2) for key, n in GOOD]
    return [*records, Sent(None, b'{"n":1,"w":"x"}', 1_100, 0), Sent(b"a", None, 1_101, 0)]


def check_results(records: list[Read], transport: str) -> None:
    """Every update of every good key, or with columns the last one, once and in order; nothing else."""
    totals: Counter[bytes] = Counter()
    expected: dict[bytes | None, list[int]] = {}
    for key, n in GOOD:
        totals[key] += n
        expected.setdefault(key, []).append(totals[key])
    found: dict[bytes | None, list[int]] = {}
    for record in records:
        found.setdefault(record.key, []).append(orjson.loads(record.value or b"")["n"])
    assert found == ({key: sums[-1:] for key, sums in expected.items()} if transport == "columns" else expected)


def counters(progress: Progress) -> dict[str, int]:
    (sub,) = progress.subs.values()
    return dict(sub.counters)


SAID = {
    "json": ("deserialization", "cannot be read in node", "SerdeError"),
    "past": ("deserialization", "cannot be read in node", "TimestampError"),
    "boom": ("processing", "made an operator fail in node", "ValueError: boom, in two lines"),
    "big": ("production", "gave a result that cannot be written in node", "OversizedRecordError"),
    "future": ("future", "has a timestamp too far in the future in node", "FutureTimestampError"),
}
"""Kind -> the policy that it meets, and what the error says."""


@pytest.mark.parametrize(
    ("transport", "kinds"),
    [
        ("raw", ["future", "boom"]),  # a time is compared in the reader, before a task reads the first record
        ("columns", ["json", "big"]),
        pytest.param("raw", ["future", "json", "boom", "big"], marks=pytest.mark.long),
        pytest.param("objects", ["json", "boom"], marks=pytest.mark.long),
        pytest.param("objects", ["past"], marks=pytest.mark.long),
        pytest.param("columns", ["past"], marks=pytest.mark.long),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_bad_record_fails_by_name_and_a_restart_skips_it(harness: Harness, transport: str, kinds: list[str]) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 1)
    topology = topology_of(transport, source, target)
    harness.send(source, [*good_records(), *map(bad, kinds)])
    settings: dict[str, Any] = {"tasks": 1, "max_record_bytes": LIMIT}
    for offset, kind in enumerate(kinds, 15):
        policy, what, cause = SAID[kind]
        with pytest.raises(ApplicationFailedError) as caught:
            harness.run(topology, **settings)
        said = str(caught.value)
        at_end = (transport, kind) == ("columns", "big")
        where = "a result emitted at the end" if at_end else f"record at {source}-1 offset {offset}"
        assert said.startswith(f"RecordFailedError: {where}"), said
        assert f", key b'{kind}', {what} " in said
        assert cause in said
        assert "or set the policy" in said
        assert "\n" not in said
        assert harness.read(target) == []
        settings[policy] = "skip"
    progress = harness.run(topology, **settings)
    check_results(harness.read(target), transport)
    found = counters(progress)
    assert {name: n for name, n in found.items() if name.startswith("skipped:")} == {
        f"skipped:{SAID[kind][0]}": 1 for kind in kinds
    }
    assert sum(n for name, n in found.items() if name.endswith((":null_key", ":null_value"))) == 2


@pytest.mark.parametrize("transport", ["raw", "columns", pytest.param("objects", marks=pytest.mark.long)])
@pytest.mark.micro_batches("the keys are not in their own partitions, so live they would come from a repartition topic")
def test_dead_letters_are_part_of_the_transaction(
    harness: Harness, transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 2)
    dead = harness.topic("dead", 1, **AS_BY_DEFAULT)
    topology = topology_of(transport, source, target)
    kinds = ["json", "big", "past", "future"] + ["boom"] * (transport != "columns")
    sent = {kind.encode(): bad(kind) for kind in kinds}
    harness.send(source, [*good_records(), *sent.values()])
    # Each task dies once with everything sent but not committed: its dead letters must not come twice.
    monkeypatch.setenv("STREAMS_FAULT", "marker_sent@*:1")
    monkeypatch.setenv("STREAMS_FAULT_ONCE", str(tmp_path / "killed"))
    started = time.time() * 1000
    progress = harness.run(
        topology,
        max_record_bytes=LIMIT,
        dead_letter_topic=dead,
        **dict.fromkeys(SKIP_ALL, "dlq"),
    )
    assert (tmp_path / "killed").exists()
    check_results(harness.read(target), transport)
    letters = harness.read(dead)
    assert sorted(letter.key or b"" for letter in letters) == sorted(sent)
    first = {record.key: offset for offset, record in enumerate(sent.values(), 15)}
    for letter in letters:
        original = sent[letter.key or b""]
        errors = {name.removeprefix("__streams.errors."): value for name, value in letter.headers}
        assert (errors["exception"] or b"") in (errors["stacktrace"] or b"")
        assert errors["message"]
        if transport == "columns" and letter.key == b"big":
            # Emitted at the end of the step: no single source record is behind it.
            assert (letter.value, errors["topic"]) == (None, b"")
            continue
        assert letter.value == original.value
        assert started <= letter.timestamp <= time.time() * 1000, "the time of the step"
        assert errors["timestamp"] == str(original.timestamp).encode()
        assert letter.headers[: len(original.headers)] == original.headers
        place = (errors["topic"], errors["partition"], errors["offset"])
        assert place == (source.encode(), b"1", b"%d" % first[letter.key])
    found = counters(progress)
    assert found["dead_letters:deserialization"] == 2
    assert (found["dead_letters:production"], found["dead_letters:future"]) == (1, 1)
    assert found.get("dead_letters:processing", 0) == (transport != "columns")


def _time_of(record: Any, partition_time: int) -> int:
    """The event's own time, which has nothing to do with when the record was written."""
    return int(record.value.get("t", 5_000))


def test_what_topics_refuse_meets_the_production_policy(harness: Harness) -> None:
    source, target = harness.topic("source", 1), harness.topic("target", 1, **AS_BY_DEFAULT)
    dead = harness.topic("dead", 1, **AS_BY_DEFAULT)
    compacted = harness.topic("compacted", 1, cleanup_policy="compact")
    names = {"none": f"{harness.application_id}.none", "internal": f"{harness.application_id}-x-commits"}
    ahead = int(time.time() * 1000) + 2 * HOUR_MS
    values: list[dict[str, Any]] = [
        {"n": 0, "to": target},
        {"n": 1, "to": target, "t": ahead},
        {"n": 2, "to": names["none"]},
        {"n": 3, "to": names["internal"]},
        {"n": 4, "to": compacted},
        {"n": 5, "to": "no name of a topic"},
        {"n": 6, "to": target},
    ]
    harness.send(source, [Sent(None, orjson.dumps(value), 5_000) for value in values])
    builder = StreamsBuilder()
    builder.stream(source, Consumed(timestamp_extractor=_time_of)).to(lambda key, value, context: value["to"])
    with pytest.raises(
        ApplicationFailedError, match=f"record at {source}-0 offset 1, .*message.timestamp.after.max.ms"
    ):
        harness.run(builder.build())
    harness.run(builder.build(), production="dlq", dead_letter_topic=dead)
    assert [orjson.loads(record.value or b"")["n"] for record in harness.read(target)] == [0, 6]
    assert harness.read(compacted) == []
    errors = {
        orjson.loads(record.value or b"")["n"]: dict(record.headers)["__streams.errors.exception"]
        for record in harness.read(dead)
    }
    refused, forbidden = b"RefusedRecordError", b"ForbiddenTopicError"
    assert errors == {1: refused, 2: b"UnknownTopicError", 3: forbidden, 4: refused, 5: forbidden}


def test_a_function_that_ends_its_process_is_reported_in_a_sentence(harness: Harness) -> None:
    source, target = harness.topic("source", 1), harness.topic("target", 1)
    builder = StreamsBuilder()
    builder.stream(source).map_values(lambda value: os._exit(7)).to(target)
    harness.send(source, good_records()[:1])
    with pytest.raises(ApplicationFailedError) as caught:
        harness.run(builder.build(), processing="skip")
    said = str(caught.value)
    assert "\n" not in said, said
    assert "Python worker exited unexpectedly" in said
    assert harness.read(target) == []


# --- A micro-batch that was logged under larger limits than there are now: planned anew, as long as no task has committed it.

KEYS = [b"k%d" % number for number in range(8)]
RECORDS = 120


def sizes(harness: Harness, source: str) -> dict[int, int]:
    """Micro-batch -> the number of records that its largest task was called for."""
    found: dict[int, int] = {}
    for record in harness.read(commits_topic(harness.application_id, source)):
        marker = CommitMarker.from_bytes(record.value or b"")
        size = sum(end - start for of in marker.ranges.values() for start, end in of.values())
        found[marker.batch_id] = max(size, found.get(marker.batch_id, 0))
    return found


@pytest.mark.parametrize(
    ("first", "dies", "limits", "said"),
    [
        pytest.param(
            True,
            "marker_sent",
            {"max_records_per_trigger": 40},
            "No task has committed it, so it is planned again",
            marks=pytest.mark.long,
        ),
        (False, "marker_sent", {"max_bytes_per_trigger": 40 * 102}, "No task has committed it, so it is planned again"),
        (
            False,
            "marker_sent@1",
            {"max_records_per_trigger": 40},
            "cannot be planned again, because task 0 has committed it",
        ),
    ],
    ids=["first-by-records", "later-by-bytes", "half-committed"],
)
@pytest.mark.micro_batches("live steps are not logged ahead")
def test_a_logged_micro_batch_that_is_too_large(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, first: bool, dies: str, limits: dict[str, Any], said: str
) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 1)
    topology = count_topology(source, target)
    if not first:
        harness.send(source, [Sent(key, b"1" * 100, 1_000) for key in KEYS])
        harness.run(topology)
    harness.send(source, [Sent(KEYS[n % len(KEYS)], b"1" * 100, 2_000 + n) for n in range(RECORDS)])
    monkeypatch.setenv("STREAMS_FAULT", dies)
    with pytest.raises(ApplicationFailedError):
        harness.run(topology)
    monkeypatch.delenv("STREAMS_FAULT")
    console = harness.run(topology, **limits).console.file
    told = " ".join(console.getvalue().split())  # type: ignore[attr-defined]
    assert said in told
    assert f"with {RECORDS} records, but the current limits allow " in told
    batch = 0 if first else 1
    planned = sizes(harness, source)
    assert (planned[batch] > 40) is (dies == "marker_sent@1"), planned
    assert all(size <= 40 for number, size in planned.items() if number > batch), planned
    expected = RECORDS // len(KEYS) + (0 if first else 1)
    found = last_per_key(harness.read(target))
    assert found == {key: expected.to_bytes(8, "big") for key in KEYS}


# --- Retries, dead letters and pauses on real Spark and Kafka, with the commands that people use for them.


class Ship(Processor):
    """Fails on `late` when it sees it for the first time, and on `never` each time."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "never" or (record.value == "late" and "-retry-" not in str(self.ctx.topic)):
            raise ValueError(f"no truck for {record.value}")
        self.ctx.forward(record)


def build(source: str, target: str, dead: str) -> Topology:
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    retry = Retry([1, 1], dead_letters=dead, keep_order=True)
    builder.stream(source).process_values(Ship, named="ship", on_error=retry).to(target)
    return builder.build()


def test_retries_dead_letters_and_pauses(harness: Harness) -> None:
    source, target, dead = harness.topic("in"), harness.topic("out"), harness.topic("dead")
    topology = build(source, target, dead)

    def command(*words: str) -> Any:
        run = CliRunner().invoke(app, [*words, "--json", "--bootstrap-servers", harness.servers])
        assert run.exit_code == 0, run.output
        return json.loads(run.output)

    given = ["late", "a", "never", "b"]
    harness.send(source, [Sent(b"k", value.encode(), 1_000 + at, 0) for at, value in enumerate(given)])
    harness.run(topology)
    # One run reads again what it has written itself, as long as that is due.
    while len(harness.read(target)) + len(harness.read(dead)) < len(given):
        harness.run(topology)
    results = harness.read(target)
    assert [(one.value, one.timestamp, one.headers) for one in results] == [
        (b"late", 1_000, ()),
        (b"a", 1_001, ()),
        (b"b", 1_003, ()),
    ]
    (letter,) = command("dlq", "list", "--topic", dead)
    assert (letter["error"], letter["letters"], letter["origin"]) == ("ValueError", 1, f"{source}-0@2")
    shown = command("dlq", "show", letter["position"], "--topic", dead)
    assert (shown["key"], shown["value"], shown["attempts"], shown["event_time"]) == ("k", "never", 3, 1_002)

    app_id, streams = harness.application_id, KafkaStreams(topology, harness.config())
    assert list(command("pause", app_id)["paused_since"]) == [""]
    assert streams.is_paused()
    assert command("dlq", "replay", "--topic", dead, "--yes")["sent"] == 1
    assert command("dlq", "replay", "--topic", dead, "--yes")["sent"] == 0
    harness.run(topology)
    assert len(harness.read(dead)) == 1, "a paused application does nothing"
    streams.resume()
    assert command("resume", app_id)["paused_since"] == {}
    while len(harness.read(dead)) < 2:
        harness.run(topology)
    again = harness.read(dead)[1]
    assert (again.value, dict(again.headers)["__streams.retry.attempt"]) == (b"never", b"3")
    assert dict(again.headers)["__streams.errors.topic"] == source.encode()
    assert command("dlq", "purge", "--topic", dead, "--replayed", "--yes")["letters"] == 1
    assert [one["replayed"] for one in command("dlq", "list", "--each", "--topic", dead)] == [0]
