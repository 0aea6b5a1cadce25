"""Where the values of the metrics are in an application's figures: one function for each form of the catalogue's series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from streams.metrics.application import ApplicationMetrics, SubTopologyMetrics, TaskMetrics
from streams.metrics.histogram import Histogram
from streams.metrics.operators import NodeMetrics

Values = Iterator[tuple[tuple[str, ...], "float | Histogram"]]
Read = Callable[[ApplicationMetrics], Values]

_OWN_METRICS = ("dead_letters", "call_ms")
"""Further counts of operators that are metrics of their own."""


def ready(app: ApplicationMetrics) -> Values:
    yield (), float(app.readiness.ready)


def start_time(app: ApplicationMetrics) -> Values:
    yield (), app.started_ms / 1000


def task_counts(app: ApplicationMetrics) -> Values:
    return _by_sub(app, lambda sub: sub.task_count)


def query_starts(app: ApplicationMetrics) -> Values:
    return _by_sub(app, lambda sub: sub.starts)


def micro_batches(app: ApplicationMetrics) -> Values:
    return _by_sub(app, lambda sub: sub.micro_batches)


def last_commits(app: ApplicationMetrics) -> Values:
    """When micro-batches were finished last."""
    return _by_sub(app, lambda sub: None if sub.committed_ms is None else sub.committed_ms / 1000)


def running(app: ApplicationMetrics) -> Values:
    """How long the present micro-batches have been running."""
    return _by_sub(app, lambda sub: 0 if sub.running_since_ms is None else (app.at_ms - sub.running_since_ms) / 1000)


def task(field: str) -> Read:
    return lambda app: (((sub, number), getattr(one, field)) for sub, number, one in _tasks(app))


def durations(app: ApplicationMetrics) -> Values:
    """The durations of each task's steps by part."""
    for sub, number, one in _tasks(app):
        for part, found in one.durations.items():
            yield (sub, number, part), found


def task_event_time_lags(app: ApplicationMetrics) -> Values:
    """How far tasks are behind the wall clock."""
    for sub, number, one in _tasks(app):
        if one.event_time_ms is not None:
            yield (sub, number), (app.at_ms - one.event_time_ms) / 1000


def lags(app: ApplicationMetrics) -> Values:
    for name, sub in app.sub_topologies.items():
        for (topic, partition), one in sorted(sub.partitions.items()):
            if one.lag is not None:
                yield (name, topic, str(partition)), one.lag


def event_time_lags(app: ApplicationMetrics) -> Values:
    """How far partitions are behind the wall clock."""
    for name, sub in app.sub_topologies.items():
        for (topic, partition), one in sorted(sub.partitions.items()):
            if one.event_time_ms is not None:
                yield (name, topic, str(partition)), (app.at_ms - one.event_time_ms) / 1000


def operator(field: str) -> Read:
    return lambda app: (((sub, node), getattr(one, field)) for sub, node, one in _operators(app))


def dropped(app: ApplicationMetrics) -> Values:
    """Dropped records by operator and reason."""
    for sub, node, one in _operators(app):
        yield from _named((sub, node), one.dropped.items())


def one_by_one(app: ApplicationMetrics) -> Values:
    """Records processed one by one, by operator and reason."""
    for sub, node, one in _operators(app):
        yield from _named((sub, node), one.one_by_one.items())


def operator_events(app: ApplicationMetrics) -> Values:
    for sub, node, one in _operators(app):
        yield from _named((sub, node), ((what, n) for what, n in one.other.items() if what not in _OWN_METRICS))


def call_seconds(app: ApplicationMetrics) -> Values:
    for sub, node, one in _operators(app):
        if "call_ms" in one.other:
            yield (sub, node), one.other["call_ms"] / 1000


def skipped(app: ApplicationMetrics) -> Values:
    """Records that a policy has left out."""
    for name, sub in app.sub_topologies.items():
        yield from _named((name,), sub.skipped.items())


def dead_letters(app: ApplicationMetrics) -> Values:
    """Dead letters: those of policies have no operator."""
    for name, sub in app.sub_topologies.items():
        yield from _named((name, ""), sub.dead_letters.items())
    for name, node, one in _operators(app):
        if "dead_letters" in one.other:
            yield (name, node, "retries"), one.other["dead_letters"]


def state(field: str) -> Read:
    return lambda app: (
        ((sub, number, store), getattr(size, field))
        for sub, number, one in _tasks(app)
        if one.state is not None
        for store, size in sorted(one.state.stores.items())
    )


def state_on_disk(app: ApplicationMetrics) -> Values:
    for sub, number, one in _tasks(app):
        if one.state is not None:
            yield (sub, number), one.state.disk_bytes


def restored(field: str) -> Read:
    """A field of what each task has restored."""
    return lambda app: (((sub, number), getattr(one.restored, field)) for sub, number, one in _tasks(app))


def restores(field: str) -> Read:
    """A field of the last restore of each store, also while it runs."""
    return lambda app: (
        ((name, str(number), store), getattr(one, field))
        for name, sub in app.sub_topologies.items()
        for (number, store), one in sorted(sub.restores.items())
    )


def memory(field: str) -> Read:
    """A field of the processes' memory, where it is known."""
    return lambda app: (
        ((one.host, one.role), value) for one in app.processes if (value := getattr(one, field)) is not None
    )


def _by_sub(app: ApplicationMetrics, value_of: Callable[[SubTopologyMetrics], float | None]) -> Values:
    for name, sub in app.sub_topologies.items():
        value = value_of(sub)
        if value is not None:
            yield (name,), value


def _tasks(app: ApplicationMetrics) -> Iterator[tuple[str, str, TaskMetrics]]:
    for name, sub in app.sub_topologies.items():
        for number, one in sorted(sub.tasks.items()):
            yield name, str(number), one


def _operators(app: ApplicationMetrics) -> Iterator[tuple[str, str, NodeMetrics]]:
    for name, sub in app.sub_topologies.items():
        for node, one in sorted(sub.operators.items()):
            yield name, node, one


def _named(labels: tuple[str, ...], counts: Iterable[tuple[str, int]]) -> Values:
    for what, count in sorted(counts):
        yield (*labels, what), count
