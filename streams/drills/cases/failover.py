"""A host that is lost, and another one that takes its tasks over: from the changelogs, and from the copies of a replica."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from state.kafka.partitioner import partition_for_key
from streams.drills.processes import CommandProcess
from streams.drills.program.topology import ORDERS, PARTITIONS, TOTALS
from streams.drills.world import APPLICATION_ID, World

KEYS_OF_STATE = 60_000
"""Orders of further keys: enough state for the difference between copying and restoring to be seen."""
WARM_S = 120.0
LARGE_STEPS = ("--max-records-per-trigger", "20000")
SUBS = (ORDERS, "by-region-repartition")

Task = tuple[str, int]
"""Sub-topology and number."""


class ReplicaHost:
    """A host with `streams replica`.

    Args:
        world: The world.
        name: The name of its folder.
    """

    def __init__(self, world: World, name: str) -> None:
        self.copies = world.folder / name / "replicas"
        options = ["-a", APPLICATION_ID, "-b", world.servers, "--base-dir", str(world.folder / name)]
        command = [sys.executable, "-m", "streams", "replica", world.application.target, *options]
        self.process = CommandProcess([*command, "--interval", "500ms", "--json"], world.folder)

    def tasks(self) -> dict[Task, bool]:
        """The tasks that it has, and whether each copy is warm; as it has said last."""
        found: dict[Task, bool] = {}
        for line in self.process.log().splitlines():
            with suppress(json.JSONDecodeError, TypeError, KeyError):
                said = json.loads(line)["tasks"]
                found = {(one["sub_topology"], one["task"]): one["warm"] for one in said}
        return found

    def warm(self) -> set[Task]:
        """The tasks of which it has a warm copy."""
        return {task for task, warm in self.tasks().items() if warm}

    def leave(self, world: World) -> None:
        self.process.interrupt()
        code = self.process.ended(WARM_S)
        world.require(code == 0, f"streams replica ended with {code}: {self.process.last_words()}")


@contextmanager
def replica_hosts(world: World, *names: str) -> Iterator[list[ReplicaHost]]:
    """Hosts with replicas in one group, which end with the block."""
    hosts = [ReplicaHost(world, name) for name in names]
    try:
        yield hosts
    finally:
        for host in hosts:
            host.process.close()


def failover(world: World) -> None:
    """D32: a host is lost, and another one takes over: without a copy of the state, and with that of a replica."""
    fill(world)
    world.start()
    world.wait_for(lambda: len(world.readers[TOTALS].records) > KEYS_OF_STATE, "large state")
    world.recovers("a host without a copy took over", move(world))
    tasks = {(sub, task) for sub in SUBS for task in range(PARTITIONS)}
    with replica_hosts(world, "second", "third") as (second, third):

        def shared() -> bool:
            both = second.warm(), third.warm()
            return all(both) and both[0] | both[1] == tasks and not both[0] & both[1]

        world.wait_for(shared, "two replicas share the tasks", WARM_S)
        world.saw(f"two replicas shared the tasks: {len(second.warm())} and {len(third.warm())}")
        second.leave(world)
        world.wait_for(lambda: third.warm() == tasks, "one replica has all tasks", WARM_S)
        world.saw("one replica ended, and the other one took its tasks over")
        moved = move(world, "--set", f"replica_dir={third.copies}")
        world.wait_for(lambda: shared_files(world.application.state, third.copies) > 0, "the copies are taken over")
        files = shared_files(world.application.state, third.copies)
        world.saw(f"{files} table files of the local stores were the replica's own, by hard links")
        world.recovers("a host with a replica took over", moved)


def fill(world: World) -> None:
    now = world.load.now_ms
    by_partition: dict[int, list[tuple[bytes, bytes, int]]] = {number: [] for number in range(PARTITIONS)}
    for number in range(KEYS_OF_STATE):
        key = b"many-%d" % number
        by_partition[partition_for_key(key, PARTITIONS)].append((key, b'{"id":"many-%d"}' % number, now))
    for partition, records in by_partition.items():
        world.topics.write(ORDERS, *records, partition=partition)


def move(world: World, *options: str) -> float:
    """Loses the application's host with its local state, and starts on another one; returns when it was lost."""
    world.application.kill_all()
    world.application.delete_state()
    killed = time.monotonic()
    world.application.start(*options)
    return killed


def shared_files(state: Path, copies: Path) -> int:
    """The number of table files that local stores have in common with copies of them, by hard links."""
    return len(files_of(state, "*.sst") & files_of(copies))


def files_of(folder: Path, name: str = "*") -> set[int]:
    """The files below a folder, by inode; they come and go meanwhile."""
    found = set()
    for file in folder.rglob(name):
        with suppress(FileNotFoundError):
            found.add(file.stat().st_ino)
    return found
