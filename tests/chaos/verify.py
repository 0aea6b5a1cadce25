"""The verification: results exactly once, also for a continuous reader; commits without gaps; state = model = restore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from state.commit.marker import CommitMarker
from state.kafka.admin import KafkaAdmin
from state.restore.directory import StateDirectory
from state.stores.dump import dump, state_digest
from state.stores.read_only import read_task_store
from streams.application.restore import restore_tasks, stored_tasks
from streams.config import StreamsConfig
from tests.chaos.model import Event, Results, differences, expected, out_of_order, result
from tests.chaos.topology import INPUTS, OUTPUTS, REGIONS, TOTALS, build
from tests.spark.harness import Read, read_committed


def inputs(servers: str) -> list[list[Event]]:
    """The sent records, by topic."""
    return [
        [
            Event((one.key or b"").decode(), orjson.loads(one.value or b"")["id"], one.timestamp)
            for one in read_committed(servers, topic)
        ]
        for topic in INPUTS
    ]


def wanted_results(servers: str) -> Results:
    """The expected contents of the output topics."""
    return expected(*inputs(servers))


def wrong_outputs(servers: str, wanted: Results, seen: Mapping[str, Sequence[Read]]) -> list[str]:
    """Errors in the output topics, and in the records that a reader saw during the run."""
    said: list[str] = []
    found: dict[str, Counter[tuple[object, ...]]] = {}
    for topic in OUTPUTS:
        records = read_committed(servers, topic)
        results = [result(topic, one.key or b"", one.value or b"") for one in records]
        found[topic] = Counter(results)
        if topic in (TOTALS, REGIONS):
            said += out_of_order(topic, results)
        if sorted(seen[topic], key=lambda one: (one.partition, one.offset)) != records:
            said.append(f"{topic}: the reader saw {len(seen[topic])} records meanwhile, now there are {len(records)}")
    return [*differences(wanted, found), *said]


def wrong_commits(servers: str, application_id: str) -> list[str]:
    """Tasks whose versions are not 1, 2, 3, …"""
    said = []
    with KafkaAdmin({"bootstrap.servers": servers}) as admin:
        topics = [name for name in admin.topic_names() if name.startswith(application_id) and name.endswith("-commits")]
    for topic in topics:
        records = read_committed(servers, topic)
        for partition in sorted({one.partition for one in records}):
            versions = [
                CommitMarker.from_bytes(one.value or b"").version for one in records if one.partition == partition
            ]
            if versions != list(range(1, len(versions) + 1)):
                said.append(f"{topic}-{partition}: versions {versions}")
    return said if topics else ["there are no commits"]


def wrong_state(config: StreamsConfig, into: Path, wanted: Results) -> list[str]:
    """Differences between the local stores, the stores restored from the changelogs, and the model."""
    tasks = stored_tasks(build(), config)
    list(restore_tasks(tasks, config, into, parallel=2))
    live, restored = (_rows(tasks, config.application_id, root) for root in (config.state_dir, into))
    said = [
        f"task {task} of {sub}: store {store} differs from the one that its changelog restores"
        for (sub, task, store), digest in live[0].items()
        if restored[0][sub, task, store] != digest
    ]
    for store, topic in (("totals", TOTALS), ("regions", REGIONS)):
        counts = Counter(key for key, _ in wanted[topic])
        if live[1][store] != counts:
            said.append(f"store {store} is {live[1][store]}, the model has {counts}")
    return said


def _rows(tasks: Sequence[Any], application_id: str, root: Path) -> tuple[dict[Any, Any], dict[str, dict[str, int]]]:
    """Digests of all stores, and the rows of the counting stores."""
    digests: dict[Any, Any] = {}
    counts: dict[str, dict[str, int]] = {"totals": {}, "regions": {}}
    for one in tasks:
        sub, task = one.place.sub_topology, one.place.task
        folder = StateDirectory(root).task(application_id, sub, task).path
        with read_task_store(folder, [node.spec for node in one.stores.values()]) as store:
            for name in store.specs:
                digests[sub, task, name] = (state_digest(store, name), store.position, store.expired_before.get(name))
                if name in counts:
                    rows = dump(store, name)
                    counts[name].update({row.key.decode(): int.from_bytes(row.value or b"", "big") for row in rows})
    return digests, counts
