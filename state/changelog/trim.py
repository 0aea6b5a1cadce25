"""Trimming changelogs by stream time.

Why: nothing expires by the broker's clock, so the engine itself must delete what windows no longer need. For each
windowed store it keeps, per segment, the first changelog offset that wrote to it (`state.stores.segments`); once a
segment has expired, everything below the smallest offset of the live ones can go. Tables are compacted, never
trimmed. Invariant: a trim is asked for only after Spark has confirmed the step whose state no longer needs the
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from state.changelog.topics import changelog_topic, cleanup_policy
from state.kafka.patience import RecordDeleter, delete_if_possible
from state.stores.spec import StoreSpec

TopicPartition = tuple[str, int]


def trim_targets(
    specs: Iterable[StoreSpec],
    needed: Mapping[str, int],
    application_id: str,
    task: int,
    trimmed: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Where the changelogs of one task may be cut.

    Args:
        specs: the task's stores.
        needed: store -> first offset still needed (`TaskStore.trim_offsets`, as of a confirmed step).
        application_id: prefix of the topics' names.
        task: number of the task.
        trimmed: where they were cut before; cuts that would not go further are left out.

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
