"""The planner on a real cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from state.kafka.admin import KafkaAdmin
from state.kafka.config import QUIET
from state.kafka.patience import Patience
from state.kafka.sampler import RecordSampler
from state.kafka.transactions import wait_until_decided
from streams.source.admin import PatientAdmin
from streams.source.clock import now_ms
from streams.source.log import LiveLog
from streams.source.pauses import PauseWatch
from streams.source.planner import BatchPlanner, SourceSpec
from streams.source.sampling import Positions, Record, TopicPartition

SHORT_WAIT_S = 20.0
"""How long the planner retries while brokers are away. The driver handles longer outages: it can report them and be stopped."""


def live_planner(client: Mapping[str, str], spec: SourceSpec) -> BatchPlanner:
    patience = Patience(min(SHORT_WAIT_S, spec.broker_wait_ms / 1000))
    admin = PatientAdmin(KafkaAdmin({**QUIET, **client}), patience)
    sampler = RecordSampler(client)
    log = LiveLog(client, admin)

    def read(at: Positions, end: Positions) -> Mapping[TopicPartition, Sequence[Record]]:
        return patience(lambda: sampler.sample(at, end))

    times = None
    if spec.times_topic:
        # It reads markers, which takes numpy and pyarrow; few programs need it.
        from streams.source.partition_times import PartitionTimes

        times = PartitionTimes(log, spec.times_topic, partial(wait_until_decided, admin, timeout_s=spec.decide_s))
    watch = None if spec.pauses is None else PauseWatch(log, *spec.pauses, now_ms)
    return BatchPlanner(admin, spec, read, times, now_ms, sampler.rest, watch or (lambda: False))
