"""What local stores hold, and what the changelogs restore, to compare the two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from state.restore.directory import StateDirectory
from state.stores.dump import read_task_store, state_digest
from streams.application.restore import restore_tasks, stateful_subs, stored_tasks
from streams.topology.topology import Topology
from tests.spark.harness import Harness

TASKS = 2


def digests(root: Path, topology: Topology, application_id: str) -> dict[tuple[str, int, str], Any]:
    """What each store of each task holds, and up to where."""
    found: dict[tuple[str, int, str], Any] = {}
    for sub in stateful_subs(topology, application_id):
        for task in range(TASKS):
            folder = StateDirectory(root).task(application_id, sub.name, task).path
            with read_task_store(folder, [node.spec for node in sub.stores.values()]) as store:
                for name in store.specs:
                    expired = store.expired_before.get(name)
                    found[sub.name, task, name] = (state_digest(store, name), store.position, expired)
    return found


def differences(harness: Harness, topology: Topology, into: Path) -> list[tuple[str, int, str]]:
    """The stores of an application that are not what their changelogs restore, in this new folder."""
    config = harness.config()
    list(restore_tasks(stored_tasks(topology, config), config, into, parallel=2))
    live, rebuilt = (digests(root, topology, harness.application_id) for root in (config.state_dir, into))
    assert live
    return [place for place in live.keys() | rebuilt.keys() if live.get(place) != rebuilt.get(place)]
