"""Who else is at work: open and hanging transactions, and a second driver under the same application id."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from state.changelog.topics import changelog_topic, commits_topic
from state.commit.marker import CommitMarker
from state.errors import MarkerFormatError
from state.kafka.topics import TopicPartition
from streams.application.doctor.findings import Finding, Place, Severity
from streams.application.doctor.inspection import Inspection, SubLook
from streams.application.transactions import OpenTransaction, open_transactions, undecided
from streams.config.durations import age_in_words
from streams.wording import counted

RECENT_MS = 10 * 60_000
_LAST = 64
"""How many offsets of a commits partition are looked at."""
_STEP = 2
"""A step's marker and the control record of its transaction."""


def transactions(inspection: Inspection) -> Iterator[Finding]:
    """Looks for transactions that hold readers up."""
    app = inspection.app
    topics = set(inspection.source_topics) | set(inspection.application.plan.repartition_topics)
    for look in inspection.subs:
        topics |= {commits_topic(app, look.name), *(changelog_topic(app, name) for name in look.prepared.sub.stores)}
    places = inspection.partitions(topics)
    before = undecided(inspection.admin, places)
    if not before:
        return
    inspection.pause()
    # A transaction of a running application has ended by now, or another one begins elsewhere.
    still = [place for place, (stable, _) in undecided(inspection.admin, before).items() if stable == before[place][0]]
    asked = inspection.transactions() if still else None
    if asked is None:
        for place in still:
            yield Finding(
                Severity.WARNING,
                "a transaction is open here and stands still: it belongs to a producer at work, or it hangs. Nobody with "
                "read_committed sees the records behind it. (The transaction itself could not be looked at: that needs Java and "
                "the broker's jars, `streams broker fetch`)",
                inspection.command("transactions"),
                Place(topic=place[0], partition=place[1], offset=before[place][0]),
            )
        return
    for one in open_transactions(inspection.admin, asked, still, inspection.pause):
        if one.blocks:
            yield _open(inspection, one)


def _open(inspection: Inspection, one: OpenTransaction) -> Finding:
    where = Place(topic=one.place[0], partition=one.place[1], offset=one.producer.start_offset)
    who = one.transactional_id or f"an unknown transactional id (producer id {one.producer.producer_id})"
    if one.hangs:
        return Finding(
            Severity.ERROR,
            f"a transaction of {who} hangs: no coordinator is going to end it, and no reader with read_committed gets past it",
            inspection.command("transactions", "--hanging"),
            where,
        )
    now_ms = inspection.now_ms()
    age = one.age_ms(now_ms)
    since = "" if age is None else f" for {age_in_words(age)}"
    assert one.coordinator is not None
    return Finding(
        Severity.WARNING if one.overdue(now_ms) else Severity.NOTE,
        f"a transaction of {who} is open{since}; its coordinator aborts it after {one.coordinator.timeout_ms} ms at the latest",
        inspection.command("transactions"),
        where,
    )


def drivers(inspection: Inspection) -> Iterator[Finding]:
    """Looks for two drivers that fence each other's tasks, in the last commits of each task."""
    for look in inspection.subs:
        for task in look.found:
            yield from _task(inspection, look, task)


def _task(inspection: Inspection, look: SubLook, task: int) -> Iterator[Finding]:
    place = (commits_topic(inspection.app, look.name), task)
    recent = [
        (offset, marker)
        for offset, marker in _last_markers(inspection, place)
        if inspection.now_ms() - marker.now_ms < RECENT_MS
    ]
    queries = [marker.query_id for _, marker in recent]
    turns = sum(one != other for one, other in pairwise(queries))
    where = Place(look.name, task, *place)
    # An adoption changes the checkpoint once.
    if turns > max(1, len(set(queries)) - 1):
        yield Finding(
            Severity.ERROR,
            f"commits of different checkpoints ({', '.join(sorted(set(queries)))}) take turns: two drivers run under the "
            f"application id {inspection.app}. Stop one of them, and give it an application id of its own",
            inspection.command("status", "--watch"),
            where,
        )
    lost = sum(later[0] - earlier[0] - _STEP for earlier, later in pairwise(recent)) // _STEP
    if lost > 0:
        yield Finding(
            Severity.WARNING,
            f"{counted(lost, 'attempt')} of this task were aborted within the last {age_in_words(RECENT_MS)}, after their marker "
            "was written: attempts that failed or took longer than transaction_timeout_ms, or a second driver under the same "
            "application id, which fences this one. See the application's own messages, and make sure that it runs once",
            inspection.command("status", "--watch"),
            where,
        )


def _last_markers(inspection: Inspection, place: TopicPartition) -> list[tuple[int, CommitMarker]]:
    """The last committed markers of a task with their offsets, the oldest first."""
    kafka = inspection.kafka
    end = kafka.end_offsets([place])[place]
    start = max(kafka.begin_offset(place), end - _LAST)
    found = []
    for columns in kafka.read(*place, start, end):
        for offset, value in zip(columns.offsets.tolist(), columns.values.to_pylist(), strict=True):
            try:
                found.append((offset, CommitMarker.from_bytes(value)))
            except MarkerFormatError:
                continue
    return found
