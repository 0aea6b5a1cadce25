"""The start of an application: the engine's own code up to the first micro-batch, or to the first lease of live execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from state.kafka.topics import TopicPartition
from streams.application.execution import LiveStart, Switch, ways_of
from streams.application.jobs import query_job
from streams.application.placements import Placements
from streams.application.prepare import Application, PreparedSub, ensure_internal_topics, plan_application
from streams.application.start import Preflight, check_start
from streams.checkpoint.files import CheckpointFiles
from streams.config import StreamsConfig
from streams.engine.live.slot import LiveSub
from streams.engine.source.offsets import FirstBatch
from streams.engine.step.job import QueryJob
from streams.topology.topology import Topology
from tests.simulation.cluster import Cluster
from tests.simulation.leases import Leases, LiveQuery
from tests.simulation.spark import Checkpoint, Query

PROCESSES = 2
"""How many tasks Spark runs at once, at most."""


def start_queries(
    cluster: Cluster,
    topology: Topology,
    config: StreamsConfig,
    files: CheckpointFiles,
    name: str,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[Query], Leases | None]:
    """Starts an application: what `prepare_start` and `KafkaStreams` do before the first micro-batch, or the first lease.

    Raises:
        StreamsError: The start is refused.
    """
    kafka: Any = cluster.kafka
    application = plan_application(topology, config, kafka, kafka)
    check_start(application, kafka, kafka)
    application = Placements(application, kafka, kafka).found()
    # What live tasks wait for has come, or else nothing has.
    application = Placements(application, kafka, kafka).decided(finally_=True)
    counts = ensure_internal_topics(application, kafka, cluster.say)
    before = preflight(cluster, application, files)
    switch = Switch(before, cluster.say)
    with cluster_switches(cluster):
        switch.finish(application.subs)
    firsts = dict(before.run())
    topics = {topic for prepared in application.subs for topic in prepared.sub.topics}
    partitions = {topic: info.partitions for topic, info in kafka.describe_topics(topics).items()}
    ways = ways_of(application, partitions, PROCESSES, others=False, refused=refused)

    def job(prepared: PreparedSub, until: Mapping[TopicPartition, int] = MappingProxyType({})) -> QueryJob:
        made = query_job(
            application, prepared=prepared, counts=counts, processes=1, readers=None, until=until,
            first=firsts.get(prepared.sub.name),
        )  # fmt: skip
        return replace(made, client={"simulated": kafka})

    def query(made: QueryJob) -> Query:
        return Query(cluster, made, Checkpoint(files, made.sub.name), name)

    def to_live(prepared: PreparedSub, first: FirstBatch | None) -> LiveStart | None:
        with cluster_switches(cluster):
            return switch.to_live(prepared, first)

    live = []
    for prepared in ways.live:
        start = to_live(prepared, firsts.get(prepared.sub.name))
        if start is None:
            cluster.say(f"{prepared.sub.name}: its last micro-batch runs to its end first")
            end = switch.unfinished(prepared)
            unfinished = query(job(prepared, end.by_partition() if end else {}))
            unfinished.freeze()
            while unfinished.trigger():
                pass
            start = to_live(prepared, None)
        if start is None:
            raise AssertionError(f"{prepared.sub.name} cannot continue live")
        live.append(LiveSub(job(prepared), start.query_id, start.start))
    for prepared in ways.micro_batch:
        with cluster_switches(cluster):
            first = switch.to_micro_batches(prepared, firsts.get(prepared.sub.name))
        if first is not None:
            firsts[prepared.sub.name] = first
    batches = [query(job(prepared)) for prepared in ways.micro_batch]
    queries = [LiveQuery(cluster, one, Checkpoint(files, one.job.sub.name)) for one in live]
    if not live:
        return batches, None
    # The executors that are there: with another number of slots, tasks are in other ones than at the start before.
    free = PROCESSES - bool(batches)
    return batches, Leases(cluster, live, free - cluster.chaos.choose(free, "slots"), name, queries)


@contextmanager
def cluster_switches(cluster: Cluster) -> Iterator[None]:
    """In this block, attempts of the execution before may go on at any event."""
    cluster.switching = True
    try:
        yield
    finally:
        cluster.switching = False


def preflight(cluster: Cluster, application: Application, files: CheckpointFiles) -> Preflight:
    """The comparison of checkpoints and markers, on the simulated Kafka."""
    kafka: Any = cluster.kafka
    return Preflight(application, files, kafka, cluster.say, kafka, lambda *_: kafka.deliver(), kafka.sample)
