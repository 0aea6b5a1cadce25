"""The subject of a drill: a program, its input, and how its results are verified."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from confluent_kafka import Producer

from state.changelog import pauses_topic
from state.commit.marker import EXPORTED, CommitMarker
from state.kafka.admin import KafkaAdmin
from state.restore.directory import StateDirectory
from state.stores.dump import DumpRow, dump, read_task_store, state_digest
from state.stores.position import StorePosition
from streams.application.java.import_app import IMPORTED
from streams.application.restore import restore_tasks
from streams.application.stored_tasks import StoredTask
from streams.config import StreamsConfig
from streams.drills.topics import OutsideReader, Read, read_committed

_FLUSH_S = 120


@dataclass(frozen=True)
class Site:
    """Where an application under test runs.

    Attributes:
        servers: The broker's address.
        base_dir: The folder of its state and checkpoint.
        folder: A folder for the files of a verification.
    """

    servers: str
    application_id: str
    base_dir: Path
    folder: Path


class Flow(threading.Thread):
    """The input: a thread that writes records until `finish` or `abandon`.

    Args:
        client: Properties of the producer.

    Attributes:
        sent: The number of records so far.
        failures: Records that could not be written.
        paused: No records are written while this is true.
        now_ms: The event time that the flow has reached.
    """

    now_ms: int

    def __init__(self, client: Mapping[str, str | int | bool]) -> None:
        super().__init__(name="load", daemon=True)
        self.sent = 0
        self.failures: list[str] = []
        self.paused = False
        self._finish = threading.Event()
        self._producer = Producer({**client, "log_level": "0"})

    def finish(self) -> None:
        """Writes the last records; may be called again."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Ends the flow without further records."""
        self._end()
        self._producer.purge()

    def _end(self) -> None:
        """Ends the thread; does nothing the second time."""
        self._finish.set()
        if self.is_alive():
            self.join()

    def _flush(self) -> None:
        if self._producer.flush(_FLUSH_S):
            self.failures.append(f"records could not be written within {_FLUSH_S} s")

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.failures.append(str(error))


class Subject(Protocol):
    """A program in a drill."""

    @property
    def target(self) -> str:
        """The program, as `streams run` takes it."""

    @property
    def inputs(self) -> Mapping[str, int]:
        """Source topics, with their partitions."""

    @property
    def outputs(self) -> Mapping[str, int]:
        """Topics of results, with their partitions."""

    @property
    def options(self) -> Sequence[str]:
        """Options of `streams run` that it needs."""

    def load(self, servers: str, seed: int, begin_ms: int | None = None) -> Flow:
        """Starts the input."""

    def complete(self, place: Site, readers: Mapping[str, OutsideReader]) -> Callable[[], bool]:
        """A function that returns whether the readers have seen all results; called once the flow has finished."""

    def wrong(self, place: Site, seen: Mapping[str, Sequence[Read]]) -> list[str]:
        """Compares results, commits and stores with what they must be, and returns the differences; empty: all is right."""


def wrong_reader(topic: str, seen: Sequence[Read], records: Sequence[Read]) -> list[str]:
    """Whether a reader that read a topic during the fault saw other records than there are now."""
    if sorted(seen, key=lambda one: (one.partition, one.offset)) == records:
        return []
    return [f"{topic}: the reader saw {len(seen)} records during the fault, now there are {len(records)}"]


def wrong_commits(servers: str, application_id: str) -> list[str]:
    """The tasks whose versions are not 1, 2, 3 and so on. After a rescale, they continue from the version that was taken over."""
    said = []
    with KafkaAdmin({"bootstrap.servers": servers}) as admin:
        names = [name for name in admin.topic_names() if name.startswith(application_id) and name.endswith("-commits")]
    topics = [name for name in names if name != pauses_topic(application_id)]
    for topic in topics:
        records = read_committed(servers, topic)
        for partition in sorted({one.partition for one in records}):
            markers = [CommitMarker.from_bytes(one.value or b"") for one in records if one.partition == partition]
            versions = versions_of_steps(markers)
            before = markers[0].version if markers[0].version == markers[0].adopted else 0
            first = next(one.offset for one in records if one.partition == partition)
            if first >= 2 * (markers[0].version - 1):
                # Each version has at least two offsets. The broker has compacted the oldest away: all have the same key.
                before = before or markers[0].version - 1
            if versions != list(range(before + 1, before + len(versions) + 1)):
                said.append(f"{topic}-{partition}: versions {versions}")
    return said if topics else ["there are no commits"]


def versions_of_steps(markers: Sequence[CommitMarker]) -> list[int]:
    """The versions of the steps among a task's markers, without other markers.

    The markers of an adoption, of an export and of an import repeat the version that they take over.
    """
    steps = [one for one in markers if one.version != one.adopted and one.query_id != IMPORTED]
    return [one.version for one in steps if not one.query_id.endswith(EXPORTED)]


def wrong_restore(tasks: Sequence[StoredTask], config: StreamsConfig, into: Path) -> list[str]:
    """Differences between the local stores and those restored from the changelogs into a new folder.

    Both are at the last commit, so a local store that is ahead of its changelog, or behind, is a difference as well.
    """
    list(restore_tasks(list(tasks), config, into, parallel=2))
    live, restored = (state_digests(tasks, config.application_id, root) for root in (config.state_dir, into))
    return [
        f"task {task} of {sub}: store {store} differs from the one that its changelog restores"
        for (sub, task, store), digest in live.items()
        if restored[sub, task, store] != digest
    ]


def state_digests(
    tasks: Sequence[StoredTask], application_id: str, root: Path
) -> dict[tuple[str, int, str], tuple[str, StorePosition | None, int | None]]:
    """Digest, position and bound of each store, by sub-topology, task and name."""
    found = {}
    for one in tasks:
        sub, task = one.place.sub_topology, one.place.task
        folder = StateDirectory(root).task(application_id, sub, task).path
        with read_task_store(folder, [node.spec for node in one.stores.values()]) as store:
            for name in store.specs:
                found[sub, task, name] = state_digest(store, name), store.position, store.expired_before.get(name)
    return found


def store_rows(tasks: Sequence[StoredTask], application_id: str, root: Path, name: str) -> Iterator[DumpRow]:
    """The rows of one store, of all its tasks."""
    for one in tasks:
        if name not in one.stores:
            continue
        folder = StateDirectory(root).task(application_id, one.place.sub_topology, one.place.task).path
        with read_task_store(folder, [node.spec for node in one.stores.values()]) as store:
            yield from dump(store, name)
