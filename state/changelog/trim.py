"""Trimming changelogs by stream time.

Why: nothing expires by the broker's clock, so the engine itself must delete what windows no longer need. For each
windowed store it keeps, per segment, the first changelog offset that wrote to it (`state.stores.segments`); once a
segment has expired, everything below the smallest offset of the live ones can go. Tables are compacted, never
trimmed. Invariant: a trim is asked for only after Spark has confirmed the step whose state no longer needs the
records.

And not at once even then. One record with a wrong time may expire whole windows, and what DeleteRecords has taken nobody brings
back: so records stay for `trim_delay_ms` after they ceased to be needed, in which an operator can step in. What was needed when is
noted in each commit marker, so neither a restart nor another host begins the wait anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from state.changelog.topics import changelog_topic, cleanup_policy
from state.kafka.patience import RecordDeleter, delete_if_possible
from state.kafka.topics import TopicPartition
from state.stores.spec import StoreSpec

DAY_MS = 24 * 60 * 60 * 1000
TRIM_DELAY_MS = DAY_MS
"""How long records stay that are not needed any more, unless told otherwise."""

Noted = Mapping[str, Sequence[tuple[int, int]]]
"""Store -> (time, first changelog offset needed then), the oldest first."""
_NAME = "needed"
_NOTES = 8
"""Notes within the delay: records stay up to 1/8 longer, and a marker holds ten notes of a store at most."""


def trim_notes(operator_state: Mapping[str, Any]) -> Noted:
    """What the state in a commit marker says of what was needed when."""
    notes: Noted = operator_state.get("task", {}).get(_NAME, {})
    return notes


def note_needed(
    operator_state: dict[str, Any], before: Mapping[str, Any], needed: Mapping[str, int], now_ms: int, delay_ms: int
) -> None:
    """Writes what is needed now into the state that goes into the next commit marker, beside what the last one says."""
    if needed and delay_ms:
        operator_state.setdefault("task", {})[_NAME] = noted(trim_notes(before), needed, now_ms, delay_ms)


def noted(before: Noted, needed: Mapping[str, int], now_ms: int, delay_ms: int) -> dict[str, list[tuple[int, int]]]:
    """What to note in the next marker.

    Args:
        before: What the last one has.
        needed: Store -> first offset needed now (`TaskStore.trim_offsets`, as of a confirmed step).
        now_ms: Time of the step.
        delay_ms: How long records stay that are not needed any more.
    """
    notes: dict[str, list[tuple[int, int]]] = {}
    for store, offset in needed.items():
        of_store = [(int(at), int(first)) for at, first in before.get(store, ())]
        if not of_store or (offset > of_store[-1][1] and now_ms - of_store[-1][0] >= delay_ms // _NOTES):
            of_store.append((now_ms, offset))
        # Of those that are due, the newest says it all.
        due = sum(at + delay_ms <= now_ms for at, _ in of_store)
        notes[store] = of_store[max(0, due - 1) :]
    return notes


def due(notes: Noted, needed: Mapping[str, int], now_ms: int, delay_ms: int) -> dict[str, int]:
    """Store -> offset below which records have not been needed for as long as the delay, nor are needed now."""
    if not delay_ms:
        return dict(needed)
    cuts = {}
    for store, offset in needed.items():
        old = [first for at, first in notes.get(store, ()) if at + delay_ms <= now_ms]
        if old:
            cuts[store] = min(offset, old[-1])
    return cuts


def trim_targets(
    specs: Iterable[StoreSpec],
    needed: Mapping[str, int],
    application_id: str,
    task: int,
    trimmed: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Where the changelogs of one task may be cut.

    Args:
        specs: The task's stores.
        needed: Store -> first offset that must stay (`due`).
        application_id: Prefix of the topics' names.
        task: Number of the task.
        trimmed: Where they were cut before; cuts that would not go further are left out.

    Returns:
        (topic, partition) -> offset below which records may be deleted.
    """
    before = trimmed or {}
    targets: dict[TopicPartition, int] = {}
    for spec in specs:
        if not spec.logged or spec.name not in needed or "delete" not in cleanup_policy(spec):
            continue
        place = (changelog_topic(application_id, spec.name), task)
        if needed[spec.name] > before.get(place, 0):
            targets[place] = needed[spec.name]
    return targets


def trim(admin: RecordDeleter, targets: Mapping[TopicPartition, int]) -> bool:
    """Deletes the records below the targets, in one request; whether they are gone. A failure is told, and stops nothing."""
    return delete_if_possible(admin, targets)
