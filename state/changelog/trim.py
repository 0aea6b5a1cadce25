"""Trimming changelogs by stream time.

Nothing expires by the broker's clock, so the engine itself deletes the records that windows no longer need. For each
windowed store and segment, `state.stores.segments` records the first changelog offset that wrote to the segment. Once a
segment has expired, everything below the smallest offset of the live segments can be deleted. Tables are compacted, never
trimmed. Invariant: a trim is requested only after Spark has confirmed the step whose state no longer needs the records.

The trim is delayed: a single record with a wrong timestamp may expire whole windows, and deleted records cannot be recovered.
Records therefore stay for `trim_delay_ms` after they ceased to be needed, which gives an operator time to intervene. Each
commit marker notes what was needed when, so neither a restart nor a move to another host restarts the delay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from state.changelog.topics import changelog_topic, cleanup_policy
from state.kafka.topics import TopicPartition
from state.stores.spec import StoreSpec

DAY_MS = 24 * 60 * 60 * 1000
TRIM_DELAY_MS = DAY_MS
"""How long records stay after they ceased to be needed, by default."""

Noted = Mapping[str, Sequence[tuple[int, int]]]
"""Store -> (time, first changelog offset needed then), the oldest first."""
_NAME = "needed"
_NOTES = 8
"""Interval of notes within the delay: records stay up to 1/8 longer, and a marker has at most ten notes per store."""


def trim_notes(operator_state: Mapping[str, Any]) -> Noted:
    """The notes of needed offsets in the state of a commit marker."""
    notes: Noted = operator_state.get("task", {}).get(_NAME, {})
    return notes


def note_needed(
    operator_state: dict[str, Any], before: Mapping[str, Any], needed: Mapping[str, int], now_ms: int, delay_ms: int
) -> None:
    """Adds the offsets needed now to the state for the next commit marker, beside the notes of the last marker."""
    if needed and delay_ms:
        operator_state.setdefault("task", {})[_NAME] = noted(trim_notes(before), needed, now_ms, delay_ms)


def noted(before: Noted, needed: Mapping[str, int], now_ms: int, delay_ms: int) -> dict[str, list[tuple[int, int]]]:
    """The notes for the next marker."""
    notes: dict[str, list[tuple[int, int]]] = {}
    for store, offset in needed.items():
        of_store = [(int(at), int(first)) for at, first in before.get(store, ())]
        if not of_store or (offset > of_store[-1][1] and now_ms - of_store[-1][0] >= delay_ms // _NOTES):
            of_store.append((now_ms, offset))
        # Among the notes that are due, the newest one implies the others.
        due = sum(at + delay_ms <= now_ms for at, _ in of_store)
        notes[store] = of_store[max(0, due - 1) :]
    return notes


def due(notes: Noted, needed: Mapping[str, int], now_ms: int, delay_ms: int) -> dict[str, int]:
    """Store -> offset below which no record is needed now or has been needed for as long as the delay."""
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
    """The offsets to which the changelogs of one task may be trimmed."""
    before = trimmed or {}
    targets: dict[TopicPartition, int] = {}
    for spec in specs:
        if not spec.logged or spec.name not in needed or "delete" not in cleanup_policy(spec):
            continue
        place = (changelog_topic(application_id, spec.name), task)
        if needed[spec.name] > before.get(place, 0):
            targets[place] = needed[spec.name]
    return targets
