"""Brings a task's stores to a committed step by reading their changelogs.

A restore ends where the step's records end: by position, never by counting records (control records and compaction leave
gaps). Invariants: rows of another query or another topic leave nothing behind; the step's number is written last, so that
`TaskStore.position` does not claim it before; no changelog is reported as damaged before a restore into an empty store has
failed as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from state.changelog.topics import changelog_topic
from state.errors import RestoreError
from state.kafka.columns import RecordColumns
from state.kafka.topics import TopicPartition
from state.restore.copies import Copies
from state.restore.listener import RestoreListener, RestoreReport
from state.restore.loading import Chunk, Loading, Reach, nowhere
from state.restore.plan import Action, LogRange, RestoreTarget, StorePlan, check_changelog_id, plan_restore
from state.restore.proof import UnprovenError
from state.stores.task_store import TaskStore


class ChangelogSource(Protocol):
    """The source of changelogs; `state.commit.live.LiveKafka` is the real one."""

    def begin_offset(self, partition: TopicPartition) -> int: ...

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]: ...

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Kafka's ids of topics, where known; an id changes when a topic is deleted and created again."""

    def delete_retention_ms(self, topic: str) -> int:
        """How long a topic keeps tombstones."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        """Committed records [start, end)."""


class Restorer:
    """Restores the stores of one task.

    Args:
        source: Kafka.
        application_id: Prefix of the changelogs' names.
        task: Number of the task; also the partition.
        listener: Notified of the progress.
        copies: Copies of the stores, which a restore may begin with instead of reading a whole changelog; default: none.
    """

    def __init__(
        self,
        source: ChangelogSource,
        application_id: str,
        task: int,
        listener: RestoreListener | None = None,
        copies: Copies | None = None,
    ) -> None:
        self._copies = copies
        self._source = source
        self._application_id = application_id
        self._task = task
        self._listener = listener

    def restore_to(
        self, store: TaskStore, target: RestoreTarget | None, now_ms: int, reach: Reach = nowhere
    ) -> RestoreReport:
        """Brings all stores to a step; costs nothing if they are at that step already.

        Raises:
            RestoreError: A changelog lacks what the step's marker promises.
            KafkaClientError: Reading failed; another call resumes where this one stopped.
        """
        if target is None:
            store.reset()
            return RestoreReport(self._task, ())
        ids = self._topic_ids(store)
        for name, found in ids.items():
            check_changelog_id(name, found, target)
        if _is_there(store, target, ids):
            return RestoreReport(self._task, ())
        logs = self._logs(store, ids)
        plans = plan_restore(store.specs.values(), store.origins, store.offsets, target, logs, now_ms=now_ms)
        copy = "" if self._copies is None else self._copies.take_over(store, target, logs, plans, now_ms)
        if copy:
            plans = plan_restore(store.specs.values(), store.origins, store.offsets, target, logs, now_ms=now_ms)
        restore = Loading(self, store, target, logs, now_ms, reach)
        try:
            return RestoreReport(self._task, restore.run(plans), copy)
        except UnprovenError as error:
            # Local state itself may be wrong, e.g. its offsets. Only a restore into an empty store proves a fault of the topics.
            if all(plan.action is Action.FROM_START for plan in plans):
                raise _accusation(error) from error
        plans = plan_restore(store.specs.values(), {}, {}, target, logs, now_ms=now_ms)
        try:
            return RestoreReport(self._task, restore.run(plans))
        except UnprovenError as error:
            raise _accusation(error) from error

    def topic(self, store: str) -> str:
        """The name of a store's changelog."""
        return changelog_topic(self._application_id, store)

    def read(self, plan: StorePlan) -> Iterator[RecordColumns]:
        return self._source.read(self.topic(plan.store), self._task, plan.start, plan.end)

    def started(self, plan: StorePlan) -> None:
        """Notifies the listener of the start."""
        if self._listener is not None:
            self._listener.on_start(plan.store, self._task, plan.end - plan.start)

    def progressed(self, plan: StorePlan, chunk: Chunk, next_offset: int) -> None:
        """Notifies the listener of the progress."""
        if self._listener is not None:
            self._listener.on_batch(plan.store, self._task, chunk.records, chunk.bytes, plan.end - next_offset)

    def _topic_ids(self, store: TaskStore) -> dict[str, str]:
        """Store -> Kafka's id of its changelog topic, where it exists."""
        topics = {name: self.topic(name) for name in store.logged_stores}
        found = self._source.topic_ids(list(topics.values())) if topics else {}
        return {name: found[topic] for name, topic in topics.items() if topic in found}

    def _logs(self, store: TaskStore, ids: Mapping[str, str]) -> dict[str, LogRange]:
        places = {name: (self.topic(name), self._task) for name in store.logged_stores}
        ends = self._source.end_offsets(list(places.values())) if places else {}
        return {
            name: LogRange(
                self._source.begin_offset(place),
                ends[place],
                ids.get(name, ""),
                self._source.delete_retention_ms(place[0]),
            )
            for name, place in places.items()
        }


def _accusation(error: UnprovenError) -> RestoreError:
    return RestoreError(
        f"{error}, in a local state that was emptied before: someone else writes to the changelogs of this application, or "
        f"records of them were deleted. Find out who (the rights on these topics, a second application with this id), and "
        f"restore the changelogs from a backup. Nothing was written to Kafka, and the local state is empty again"
    )


def _is_there(store: TaskStore, target: RestoreTarget, ids: Mapping[str, str]) -> bool:
    position, origins = store.position, store.origins
    if position is None or (position.query_id, position.version) != (target.query_id, target.version):
        return False
    for name in store.logged_stores:
        origin = origins.get(name)
        if origin is None or origin.query_id != target.query_id:
            return False
        if origin.topic_id and ids.get(name, origin.topic_id) != origin.topic_id:
            return False
        if position.changelog_offsets.get(name) != target.changelog_ends.get(name):
            return False
    return True
