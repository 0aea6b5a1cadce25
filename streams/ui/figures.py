"""The figures of the page as plain data: what `/api/v1/…` answers, made of the metrics of an application and its history.

Durations end in `_ms` or `_s`, sizes in `_bytes`, rates in `_per_s`; moments are milliseconds since 1970. What is unknown is null.
`docs/ui.md` describes each answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import reduce
from typing import Any

from streams.engine.graph.settings import CPU_NS
from streams.metrics.application import (
    PARTS,
    WHOLE_STEP,
    ApplicationMetrics,
    NodeMetrics,
    SubTopologyMetrics,
    TaskMetrics,
)
from streams.ui.curves import POINT_MS, Trouble
from streams.ui.headline import Headline, Throughput, headline
from streams.ui.history import FollowedRecord, History, StepPoint, SubHistory, Work

_COLUMNS = 60
"""The number of micro-batches that the heat map of tasks shows."""
_NO_HISTORY = SubHistory()
IDLE = Work(0.0, 0.0, 0.0, 0.0)
"""A task without a step in the last minute."""


def unasked(app: ApplicationMetrics) -> ApplicationMetrics:
    """The figures while the brokers cannot be asked: the ends of the topics are unknown, and so is every lag."""

    def sub(one: SubTopologyMetrics) -> SubTopologyMetrics:
        return replace(one, partitions={place: replace(at, end=None) for place, at in one.partitions.items()})

    return replace(app, sub_topologies={name: sub(one) for name, one in app.sub_topologies.items()})


def overview(app: ApplicationMetrics, history: History, silent_s: float | None = None) -> dict[str, Any]:
    """The headline, and a row for each sub-topology. `silent_s` is the time for which the brokers have not answered."""
    silent = silent_s is not None
    with history.reading() as subs:
        known = {name: subs.get(name, _NO_HISTORY) for name in app.sub_topologies}
        paces = {name: pace(app.at_ms, sub, known[name], silent) for name, sub in app.sub_topologies.items()}
        cpu = {name: one.per_s(lambda one: one.cpu_s) or 0.0 for name, one in known.items()}
        trouble = {name: known[name].curve.trouble(app.at_ms, sub) for name, sub in app.sub_topologies.items()}
    paused = history.paused_since_ms()
    found = headline(
        app, paces, paused, reduce(Trouble.plus, trouble.values(), Trouble(history.letters_found)), silent_s
    )
    rows = [
        {**_sub(app, name, sub, paces[name], cpu, paused.get(name, paused.get(None))), "lately": asdict(trouble[name])}
        for name, sub in app.sub_topologies.items()
    ]
    return {
        "application_id": app.application_id,
        "at": app.at_ms,
        "started": app.started_ms,
        "old": silent,
        **_headline(found),
        "sub_topologies": rows,
    }


def _headline(found: Headline) -> dict[str, Any]:
    return {
        "state": found.state,
        "level": found.level,
        "sentence": found.sentence,
        **_pace(found.pace),
    }


def _pace(one: Throughput) -> dict[str, Any]:
    visible = one.visible_ms or (None, None)
    return {
        "records_per_s": one.records_per_s,
        "arriving_per_s": one.arriving_per_s,
        "visible_after_p50_ms": visible[0],
        "visible_after_p99_ms": visible[1],
        "lag_records": one.lag,
        "lag_ms": one.lag_ms,
        "caught_up_in_s": one.caught_up_in_s,
        "event_time_lag_ms": one.event_time_lag_ms,
    }


def pace(at_ms: int, sub: SubTopologyMetrics, history: SubHistory, silent: bool = False) -> Throughput:
    """The speed of a sub-topology, and how far it is behind; the lag is unknown while the brokers are silent."""
    visible = history.waits_ms(at_ms, 0.5, 0.99)
    return Throughput(
        records_per_s=None if silent else history.per_s(lambda one: one.read),
        arriving_per_s=None if silent else history.per_s(lambda one: one.end),
        lag=None if silent else sub.lag,
        lag_ms=None if silent else history.lag_ms(at_ms),
        visible_ms=None if visible is None else (visible[0], visible[1]),
        event_time_lag_ms=None if sub.event_time_ms is None else at_ms - sub.event_time_ms,
        usual_ms=history.usual_ms,
        falls_behind=history.falls_behind(at_ms),
        at_most=history.live,
    )


def _sub(
    app: ApplicationMetrics,
    name: str,
    sub: SubTopologyMetrics,
    speed: Throughput,
    cpu: Mapping[str, float],
    paused_since_ms: int | None,
) -> dict[str, Any]:
    total = sum(cpu.values())
    return {
        "sub_topology": name,
        "topics": list(sub.topics),
        "tasks": sub.task_count,
        **_pace(speed),
        "records_in": sub.records_in,
        "records_out": sub.records_out,
        "changelog_records": sub.changelog_records,
        "live": speed.at_most,
        "micro_batch": None if speed.at_most else sub.batch_id,
        "micro_batches": sub.micro_batches,
        "starts": sub.starts,
        "committed": sub.committed_ms,
        "running_ms": None if sub.running_since_ms is None else app.at_ms - sub.running_since_ms,
        "paused_since": paused_since_ms,
        "cpu_share": cpu[name] / total if total else None,
        "cpu_cores": cpu[name],
        "skipped": sub.skipped,
        "dead_letters": sub.dead_letters,
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "position": one.position,
                "end": one.end,
                "lag": one.lag,
                "event_time": one.event_time_ms,
            }
            for (topic, number), one in sorted(sub.partitions.items())
        ],
    }


def operators(app: ApplicationMetrics, history: History) -> dict[str, Any]:
    """The counts of each operator, with its rates."""
    with history.reading() as subs:
        rows = [
            {"sub_topology": name, "operator": node, **_operator(node, one, sub, subs.get(name, _NO_HISTORY))}
            for name, sub in app.sub_topologies.items()
            for node, one in sorted(sub.operators.items())
        ]
    return {"at": app.at_ms, "operators": rows}


def _operator(node: str, one: NodeMetrics, sub: SubTopologyMetrics, history: SubHistory) -> dict[str, Any]:
    # Operators count the records that a policy removes; stages count whether they were skipped or became dead letters.
    letters = {stage for stage in sub.dead_letters if stage not in sub.skipped}
    cpu_ns_per_s = history.per_s(lambda sample: sample.counters.get(f"{CPU_NS}{node}", 0)) if one.cpu_ns else None
    return {
        "records_in": one.records_in,
        "records_out": one.records_out,
        "in_per_s": history.per_s(lambda sample: sample.counters.get(f"in:{node}", 0)),
        "out_per_s": history.per_s(lambda sample: sample.counters.get(f"out:{node}", 0)),
        "dropped": {reason: count for reason, count in one.dropped.items() if reason not in letters},
        "dead_letters": sum(one.dropped.get(stage, 0) for stage in letters),
        "looked_up": one.looked_up,
        "unmatched": one.unmatched,
        "one_by_one": one.one_by_one,
        "cpu_s": one.cpu_ns / 1e9 if one.cpu_ns else None,
        "cpu_cores": None if cpu_ns_per_s is None else cpu_ns_per_s / 1e9,
        "events": one.other,
    }


def tasks(app: ApplicationMetrics, history: History) -> dict[str, Any]:
    """Each task with its state, and with its work in each of the last micro-batches."""
    with history.reading() as subs:
        rows = [
            {"sub_topology": name, **_tasks(app.at_ms, sub, subs.get(name, _NO_HISTORY))}
            for name, sub in app.sub_topologies.items()
        ]
    return {"at": app.at_ms, "sub_topologies": rows}


def _tasks(at_ms: int, sub: SubTopologyMetrics, history: SubHistory) -> dict[str, Any]:
    batches, work = history.columns(_COLUMNS), history.work(at_ms)
    cells: dict[int, list[StepPoint | None]] = {task: [None] * len(batches) for task in range(sub.task_count)}
    for column, batch in enumerate(batches):
        for step in batch.steps:
            cells.setdefault(step.task, [None] * len(batches))[column] = step
    records = [sum(one.records for one in row if one is not None) for row in cells.values()]
    mean = sum(records) / max(1, len(records))
    return {
        "live": history.live,
        "micro_batches": [{"micro_batch": None if one.live else one.batch_id, "at": one.at_ms} for one in batches],
        "skew": max(records) / mean if mean else None,
        "tasks": [
            _task(number, sub.tasks.get(number, TaskMetrics()), row, work.get(number, IDLE))
            for number, row in sorted(cells.items())
        ],
    }


def _task(number: int, one: TaskMetrics, row: Sequence[StepPoint | None], work: Work) -> dict[str, Any]:
    last, state = one.last, one.state
    return {
        "task": number,
        "step": one.version,
        "host": last.host if last else None,
        "pid": last.pid if last else None,
        "rss_bytes": (last.rss_bytes or None) if last else None,
        "records_in": one.records_in,
        "records_out": one.records_out,
        "changelog_records": one.changelog_records,
        **asdict(work),
        "waiting": 1 - work.busy,
        "cpu_s": one.cpu_s,
        "steps": one.steps,
        "skipped_steps": one.skipped_steps,
        "failed_attempts": one.failed_attempts,
        "event_time": one.event_time_ms,
        "state_bytes": state.disk_bytes if state else None,
        "state_rows": sum(store.rows for store in state.stores.values()) if state else None,
        "stores": {name: {"rows": size.rows, "bytes": size.bytes} for name, size in state.stores.items()}
        if state
        else {},
        "history": {
            "records": [None if step is None else step.records for step in row],
            "step_ms": [None if step is None else step.step_ms for step in row],
            "cpu_ms": [None if step is None else step.cpu_ms for step in row],
            "failed_attempts": [None if step is None else step.attempt for step in row],
        },
    }


def curves(app: ApplicationMetrics, history: History) -> dict[str, Any]:
    """The last hour of each sub-topology."""
    with history.reading() as subs:
        rows = [{"sub_topology": name, **subs.get(name, _NO_HISTORY).curve.as_json} for name in app.sub_topologies]
    return {"at": app.at_ms, "point_ms": POINT_MS, "sub_topologies": rows}


def steps(app: ApplicationMetrics, history: History) -> dict[str, Any]:
    """How long the parts of a step take, and the micro-batch around it."""
    with history.reading() as subs:
        rows = [{"sub_topology": name, **_parts(subs.get(name, _NO_HISTORY))} for name in app.sub_topologies]
    return {"at": app.at_ms, "sub_topologies": rows}


def _parts(history: SubHistory) -> dict[str, Any]:
    batches = history.columns(_COLUMNS)
    done = [step for batch in batches for step in batch.steps if not step.skipped and step.seconds]
    timed = [batch for batch in batches if batch.began_ms is not None and batch.steps and not batch.live]
    whole = [batch.at_ms - batch.began_ms for batch in timed if batch.began_ms is not None]
    around = [ms - max(step.total_s for step in batch.steps) * 1000 for ms, batch in zip(whole, timed, strict=True)]
    return {
        "live": history.live,
        "steps": sum(step.steps for step in done),
        "micro_batches": len(timed),
        "parts": [
            {"part": part, **_percentiles([step.seconds.get(part, 0.0) * 1000 for step in done])} for part in PARTS
        ],
        WHOLE_STEP: _percentiles([step.total_s * 1000 for step in done]),
        "micro_batch": _percentiles(whole),
        "around": _percentiles([max(0.0, ms) for ms in around]),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float | None]:
    ordered = sorted(values)
    if not ordered:
        return {"p50_ms": None, "p99_ms": None}
    return {
        "p50_ms": round(ordered[(len(ordered) - 1) // 2], 2),
        "p99_ms": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 2),
    }


def restores(app: ApplicationMetrics, history: History) -> dict[str, Any]:
    """The restores that run or have run, and what each task has restored since the start."""
    return {
        "at": app.at_ms,
        "stores": list(_restores(app, history)),
        "tasks": [
            {
                "sub_topology": name,
                "task": number,
                "records": one.restored.records,
                "rows": one.restored.rows,
                "bytes": one.restored.bytes,
                "copies": one.restored.copies,
                "seconds": one.restored.seconds,
            }
            for name, sub in app.sub_topologies.items()
            for number, one in sorted(sub.tasks.items())
            if one.restored.seconds
        ],
    }


def _restores(app: ApplicationMetrics, history: History) -> Iterator[dict[str, Any]]:
    for name, sub in app.sub_topologies.items():
        for (task, store), one in sorted(sub.restores.items()):
            rate = history.restored_per_s(name, task, store, app.at_ms, one.remaining)
            yield {
                "sub_topology": name,
                "task": task,
                "store": store,
                "offsets": one.offsets,
                "remaining": one.remaining,
                "records": one.records,
                "offsets_per_s": rate,
                "remaining_s": one.remaining / rate if rate and one.remaining else None,
            }


def events(history: History) -> dict[str, Any]:
    """The last events, newest first."""
    found = history.events()
    return {
        "counts": Counter(event.name for event in found),
        "events": [
            {
                "event": event.name,
                "at": event.time_ms,
                "level": event.kind.level,
                "message": event.message,
                "sub_topology": event.sub_topology,
                "task": event.task,
                "fields": dict(event.fields),
            }
            for event in reversed(found)
        ],
    }


def followed(history: History) -> dict[str, Any]:
    """Records of the followed key that operators received or dropped, newest first."""
    received, dropped = history.followed()
    return {"received": _samples(received), "dropped": _samples(dropped)}


def _samples(records: Sequence[FollowedRecord]) -> list[dict[str, Any]]:
    return [
        {"at": one.at_ms, "sub_topology": one.sub_topology, "task": one.task, **one.sample} for one in reversed(records)
    ]
