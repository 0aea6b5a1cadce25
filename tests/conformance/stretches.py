"""Cuts a case into the micro-batches in which real Spark is to see it, so that the order of its records is kept.

Within a micro-batch a task merges its partitions by time, so a stretch of records may be one batch only if that merge gives
the order in which the case lists them. Where a mark of the case or a global table stands in between, it is cut as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streams.operators.operator import Mode
from streams.topology.plan import Plan
from tests.conformance.case import Case, CaseError

Stretch = list[int]


def cut(case: Case, plan: Plan, mode: Mode) -> list[list[Stretch]]:
    """The stretches of a case, each the indexes of its records; a list for each time that the application is started.

    Raises:
        CaseError: the case needs what real Spark and Kafka cannot give: a wall clock that the test sets, or to tell its own records
            in a topic from results.
    """
    throttled = mode == "compat" and case.config.get("emit_interval_ms")
    if throttled or any("advance_wall_clock_ms" in record for record in case.records):
        raise CaseError("not for Spark: its wall clock cannot be set")
    written = {sink.topic for sub in plan.sub_topologies for sink in sub.sinks}
    if {record.get("topic") for record in case.records} & written:
        raise CaseError("not for Spark: it writes to a topic of results")
    runs = []
    for part in _split(case, {"restart": True}, range(len(case.records))):
        steps = _split(case, {"step": True}, part)
        stretches = (cut for step in steps for cut in ([step] if case.batch else _cut(case, plan, step)))
        runs.append([stretch for stretch in stretches if stretch])
    return runs


def _split(case: Case, mark: dict[str, bool], indexes: Sequence[int]) -> Iterator[Stretch]:
    part: Stretch = []
    for index in indexes:
        if case.records[index] == mark:
            yield part
            part = []
        else:
            part.append(index)
    yield part


def _cut(case: Case, plan: Plan, indexes: Sequence[int]) -> Iterator[Stretch]:
    alone = case.error is not None or meets_repartitioned(plan)
    stretch: Stretch = []
    for index in indexes:
        if stretch and (alone or not _keeps_order(case, plan, [*stretch, index])):
            yield stretch
            stretch = []
        stretch.append(index)
    yield stretch


def meets_repartitioned(plan: Plan) -> bool:
    """Whether a sub-topology merges a repartition topic with others: when its records come is not known beforehand."""
    internal = set(plan.repartition_topics)
    return any(len(sub.topics) > 1 and internal & set(sub.topics) for sub in plan.sub_topologies)


def _keeps_order(case: Case, plan: Plan, stretch: Stretch) -> bool:
    of_globals = {table.source.topics[0] for table in plan.topology.global_tables.values()}
    if case.records[stretch[-1]]["topic"] in of_globals:
        return all(case.records[index]["topic"] in of_globals for index in stretch)
    for sub in plan.sub_topologies:
        rows = [(case.records[index]["topic"], case.records[index]["timestamp"]) for index in stretch]
        mine = [(sorted(sub.topics).index(topic), time) for topic, time in rows if topic in sub.topics]
        order = merge_order_plain([part for part, _ in mine], range(len(mine)), [0] * len(mine), [t for _, t in mine])
        if order != sorted(order):
            return False
    return True


def merge_order_plain(
    parts: Sequence[int], offsets: Sequence[int], seqs: Sequence[int], timestamps: Sequence[int]
) -> list[int]:
    """The order in which a task processes its rows: the definition of `merge_order`."""
    queues: dict[int, list[int]] = {}
    for row in sorted(range(len(parts)), key=lambda row: (parts[row], offsets[row], seqs[row]), reverse=True):
        queues.setdefault(parts[row], []).append(row)
    order = []
    while queues:
        part = min(queues, key=lambda part: (timestamps[queues[part][-1]], part))
        order.append(queues[part].pop())
        if not queues[part]:
            del queues[part]
    return order
