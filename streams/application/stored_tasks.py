"""The tasks of an application that have stores, as known from Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from state.changelog import commits_topic
from state.kafka.admin import KafkaAdmin
from state.restore.place import TaskPlace
from streams.application.owned_topics import own_manifest
from streams.application.prepare import as_started, commits_topics, known_names
from streams.config import StreamsConfig
from streams.errors import ConfigError, TopologyError
from streams.topology.graph import StoreNode
from streams.topology.plan import SubTopology, build_plan
from streams.topology.topology import Topology


@dataclass(frozen=True)
class StoredTask:
    place: TaskPlace
    stores: dict[str, StoreNode]


def stateful_subs(topology: Topology, application_id: str, known: Sequence[str] = ()) -> list[SubTopology]:
    """The sub-topologies that have stores."""
    subs = [sub for sub in build_plan(topology, application_id, known).sub_topologies if sub.stores]
    if not subs:
        raise TopologyError(f"{application_id} has no stores: all its operators are stateless.")
    return subs


def with_own_topics(topology: Topology, config: StreamsConfig) -> Topology:
    """The topology with the repartition topics that the running application's plan has added."""
    with KafkaAdmin(config.client) as admin:
        return as_started(topology, config, admin)


def stored_tasks(topology: Topology, config: StreamsConfig) -> list[StoredTask]:
    """All tasks with stores. There are as many as the commits topics have partitions.

    Raises:
        ConfigError: The application has never run on this cluster.
        TopologyError: The application has no stores.
    """
    app = config.application_id
    with KafkaAdmin(config.client) as admin:
        topology = as_started(topology, config, admin)
        found = commits_topics(topology, app, admin)
        known = known_names(found, app, own_manifest(config), admin)
    tasks = []
    for sub in stateful_subs(topology, app, known):
        if sub.name not in found:
            raise ConfigError(
                f"application {app!r} has no state on this cluster: there is no topic "
                f"{commits_topic(app, sub.name)!r}. Check the application id and the cluster, or run the application first"
            )
        count = found[sub.name].partitions
        for task in range(count):
            place = TaskPlace(app, sub.name, task, count, sub.topology_hash)
            tasks.append(StoredTask(place, sub.stores))
    return tasks
