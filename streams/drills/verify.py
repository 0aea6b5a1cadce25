"""What must hold for every program: commits without gaps, and local stores equal to those that the changelogs restore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from state.commit.marker import CommitMarker
from state.kafka.admin import KafkaAdmin
from state.restore.directory import StateDirectory
from state.stores.dump import DumpRow, dump, read_task_store, state_digest
from state.stores.position import StorePosition
from streams.application.restore import StoredTask, restore_tasks
from streams.config import StreamsConfig
from streams.drills.reader import read_committed


def wrong_commits(servers: str, application_id: str) -> list[str]:
    """Tasks whose versions are not 1, 2, 3 and so on; after a rescale, further from the version that it has taken over."""
    said = []
    with KafkaAdmin({"bootstrap.servers": servers}) as admin:
        topics = [name for name in admin.topic_names() if name.startswith(application_id) and name.endswith("-commits")]
    for topic in topics:
        records = read_committed(servers, topic)
        for partition in sorted({one.partition for one in records}):
            markers = [CommitMarker.from_bytes(one.value or b"") for one in records if one.partition == partition]
            versions = versions_of_steps(markers)
            before = markers[0].version if markers[0].version == markers[0].adopted else 0
            if versions != list(range(before + 1, before + len(versions) + 1)):
                said.append(f"{topic}-{partition}: versions {versions}")
    return said if topics else ["there are no commits"]


def versions_of_steps(markers: Sequence[CommitMarker]) -> list[int]:
    """The versions of the steps among a task's markers. The marker of an adoption repeats the version that it takes over."""
    return [one.version for one in markers if one.version != one.adopted]


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
