"""What strict mode means, a second time: plain Python over lists, written from the rules in `docs/operators` alone.

Shares nothing with the engine, nor with the other tests' models. Two kinds of functions:

* over the *sorted* log, for input whose disorder stays within grace: order of arrival plays no part, so nothing is late;
* over the log in *order of processing*, where records come too late: what is dropped depends on what came before.

Times are milliseconds. A record is (topic, partition, key, value, time); a value is ``{"v": number}`` or None. Windows are
(start, end) as the engine shows them: end exclusive for time windows, inclusive for sliding windows and sessions.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One record of the input."""

    topic: str
    partition: int
    key: str | None
    value: Any
    time: int


def by_time(log: list[Entry]) -> list[Entry]:
    """The log sorted by time; ties in a fixed order that is not that of arrival."""
    return sorted(log, key=lambda entry: (entry.time, repr(entry)))


def merged(steps: list[list[Entry]]) -> list[Entry]:
    """Order in which one task processes its records: step by step, always the partition whose next record is oldest."""
    order = []
    for step in steps:
        queues: dict[tuple[str, int], list[Entry]] = {}
        for entry in step:
            queues.setdefault((entry.topic, entry.partition), []).append(entry)
        while queues:
            place = min(queues, key=lambda place: (queues[place][0].time, place))
            order.append(queues[place].pop(0))
            if not queues[place]:
                del queues[place]
    return order


# What an aggregate makes of the values of a window, whatever their order -----------------------------------------------


def listed(values: list[Any]) -> Any:
    return sorted(-1 if value is None else value["v"] for value in values)


def counted(values: list[Any]) -> Any:
    return len(values)


def built_in(values: list[Any]) -> Any:
    numbers = [value["v"] for value in values if value is not None]
    return {
        "n": len(values),
        "sum": sum(numbers) if numbers else None,
        "max": max(numbers, default=None),
        "mean": sum(numbers) / len(numbers) if numbers else None,
    }


def grouped(log: list[Entry]) -> dict[Any, Any]:
    """Without windows: {key: (values, time of the result)}."""
    kept = [entry for entry in log if entry.key is not None and entry.value is not None]
    return {
        key: ([one.value for one in kept if one.key == key], max(one.time for one in kept if one.key == key))
        for key in {entry.key for entry in kept}
    }


# Windows: {(key, start, end): (values, time of the result)} -----------------------------------------------------------


def time_windows(log: list[Entry], size: int, advance: int, grace: int) -> tuple[dict[Any, Any], int]:
    """Tumbling and hopping windows over the log in order of processing; also how many (record, window) were late."""
    found: dict[Any, Any] = {}
    newest, late = -1, 0
    for _, _, key, value, time in log:
        if key is None:
            continue
        newest = max(newest, time)
        for start in range(0, time + 1, advance):
            if not start <= time < start + size:
                continue
            if start + size + grace <= newest:
                late += 1
                continue
            values, at = found.get((key, start, start + size), ([], -1))
            found[key, start, start + size] = ([*values, value], max(at, time))
    return found, late


def sliding_windows(log: list[Entry], difference: int) -> dict[Any, Any]:
    """All sliding windows of a log without late records: one that ends at each record, one that begins right behind it."""
    found = {}
    kept = [entry for entry in log if entry.key is not None and entry.value is not None]
    for key in {entry.key for entry in kept}:
        of_key = [entry for entry in kept if entry.key == key]
        starts = {max(0, entry.time - difference) for entry in of_key} | {entry.time + 1 for entry in of_key}
        for start in starts:
            inside = [entry for entry in of_key if start <= entry.time <= start + difference]
            if inside:
                values = [entry.value for entry in inside]
                found[key, start, start + difference] = (values, max(entry.time for entry in inside))
    return found


def sessions(log: list[Entry], gap: int) -> dict[Any, Any]:
    """All sessions of a log without late records: runs whose neighbours are at most ``gap`` apart."""
    found = {}
    for key in {entry.key for entry in log} - {None}:
        run: list[Entry] = []
        for entry in by_time([entry for entry in log if entry.key == key]):
            if run and entry.time - run[-1].time > gap:
                found[key, run[0].time, run[-1].time] = ([one.value for one in run], run[-1].time)
                run = []
            run.append(entry)
        found[key, run[0].time, run[-1].time] = ([one.value for one in run], run[-1].time)
    return found


def late_sessions(log: list[Entry], gap: int, grace: int) -> tuple[dict[Any, Any], dict[Any, Any], int]:
    """Sessions over the log in order of processing: the last ones, all that ever closed, and how many records were late.

    A record that is not late may still reach back to a closed session and become one with it (Kafka Streams' rule); then
    both of them were final results once.
    """
    kept: dict[str, list[Entry]] = {}
    closed: dict[Any, Any] = {}
    newest, late = -1, 0
    for entry in log:
        if entry.key is None:
            continue
        newest = max(newest, entry.time)
        held = kept.setdefault(entry.key, [])
        runs = sessions([*held, entry], gap)
        end = next(end for _, start, end in runs if start <= entry.time <= end)
        if end + gap + grace < newest:
            late += 1
        else:
            held.append(entry)
        for runs in (sessions(held, gap) for held in kept.values() if held):
            closed |= {run: what for run, what in runs.items() if run[2] + gap + grace < newest}
    found = {run: what for held in kept.values() if held for run, what in sessions(held, gap).items()}
    return found, closed | found, late


# Joins of two streams: rows (key, left, right, time) -------------------------------------------------------------------


def join_in_time(log: list[Entry], before: int, after: int, kind: str) -> list[Any]:
    """All pairs of a log without late records, and on outer sides the records that found nobody."""
    left = [entry for entry in log if entry.topic == "left" and entry.value is not None]
    right = [entry for entry in log if entry.topic == "right" and entry.value is not None]
    rows, met = [], set()
    for one in left:
        for other in right:
            if one.key is None or one.key != other.key or not one.time - before <= other.time <= one.time + after:
                continue
            if other.time > until(one):
                continue
            rows.append((one.key, one.value["v"], other.value["v"], max(one.time, other.time)))
            met |= {id(one), id(other)}
    rows += [(one.key, one.value["v"], None, one.time) for one in left if kind != "inner" and id(one) not in met]
    rows += [(one.key, None, one.value["v"], one.time) for one in right if kind == "outer" and id(one) not in met]
    return rows


def until(left: Entry) -> float:
    """The time in the field "u" of a left record, after which no right one joins it; infinite without one."""
    found = left.value.get("u")
    return math.inf if found is None else float(found)


def join_with_late(log: list[Entry], before: int, after: int, grace: int, kind: str) -> tuple[list[Any], int]:
    """The same over the log in order of processing; also how many records were late."""
    newest, late = -1, 0
    accepted: list[Entry] = []
    rows: list[Any] = []
    met: set[int] = set()

    def last_open(entry: Entry) -> float:
        if entry.topic == "left":
            return max(entry.time, min(entry.time + after, until(entry))) + grace
        return entry.time + max(0, before) + grace

    for entry in log:
        newest = max(newest, entry.time)
        if entry.value is None:
            continue
        is_outer = kind == "outer" or (kind == "left" and entry.topic == "left")
        if entry.key is None:
            if is_outer:
                rows.append(alone(entry))
            continue
        if last_open(entry) < newest:
            late += 1
            continue
        for other in accepted:
            if other.topic == entry.topic or other.key != entry.key or last_open(other) < newest:
                continue
            one, two = (entry, other) if entry.topic == "left" else (other, entry)
            if one.time - before <= two.time <= min(one.time + after, until(one)):
                rows.append((one.key, one.value["v"], two.value["v"], max(one.time, two.time)))
                met |= {id(one), id(two)}
        accepted.append(entry)
    for entry in accepted:
        if id(entry) not in met and (kind == "outer" or (kind == "left" and entry.topic == "left")):
            rows.append(alone(entry))
    return rows, late


def alone(entry: Entry) -> Any:
    """The row of a record that found nobody."""
    value = entry.value["v"]
    return (entry.key, value, None, entry.time) if entry.topic == "left" else (entry.key, None, value, entry.time)


# Tables: {key: value} at the end, by order within each partition -------------------------------------------------------


def table(log: list[Entry], topic: str) -> dict[str, Any]:
    """The last value of each key by order of arrival; null deletes."""
    last = {entry.key: entry.value for entry in log if entry.topic == topic and entry.key is not None}
    return {key: value["v"] for key, value in last.items() if value is not None}


def joined_tables(log: list[Entry], kind: str) -> dict[str, Any]:
    """The rows of a join of two tables by key."""
    left, right = table(log, "left"), table(log, "right")
    keys = {"inner": left.keys() & right.keys(), "left": left.keys(), "outer": left.keys() | right.keys()}[kind]
    return {key: [left.get(key), right.get(key)] for key in keys}


def joined_by_foreign_key(log: list[Entry], kind: str, foreign_key: Any) -> dict[str, Any]:
    """The rows of a join of the left table with the right one by a key made of the left value."""
    left, right = table(log, "left"), table(log, "right")
    rows = {key: [value, right.get(foreign_key(value))] for key, value in left.items()}
    return {key: row for key, row in rows.items() if kind == "left" or row[1] is not None}


def grouped_table(log: list[Entry], group: Any) -> dict[str, Any]:
    """Count and sum of the values of each group that has a row; ``group`` gives a value's group or None."""
    rows = table(log, "left").values()
    groups = {group(value) for value in rows} - {None}
    return {name: [len(of := [value for value in rows if group(value) == name]), sum(of)] for name in groups}


def looked_up(log: list[Entry], kind: str) -> list[Any]:
    """Rows (key, value, table's value, time) of a stream ``left`` joined with a table ``right``, in processing order."""
    held: dict[str, Any] = {}
    rows = []
    for topic, _, key, value, time in log:
        if topic == "right":
            if key is not None:
                held[key] = None if value is None else value["v"]
            continue
        found = None if key is None else held.get(key)
        if value is not None and (kind == "left" or found is not None):
            rows.append((key, value["v"], found, time))
    return rows


def looked_up_as_of(log: list[Entry], kind: str) -> list[Any]:
    """The same with the table as it was at each record's time, whatever the order of arrival; no two times are equal."""
    table_log = by_time([entry for entry in log if entry.topic == "right"])
    rows = []
    for entry in log:
        if entry.topic != "left" or entry.value is None:
            continue
        history = [
            one for one in table_log if one.key == entry.key and one.time <= entry.time and entry.key is not None
        ]
        value = history[-1].value["v"] if history and history[-1].value is not None else None
        if kind == "left" or value is not None:
            rows.append((entry.key, entry.value["v"], value, entry.time))
    return rows


# What Kafka Streams lacks -----------------------------------------------------------------------------------------------


def as_of(log: list[Entry], within: int, kind: str) -> list[Any]:
    """Each left record with the newest right one not newer than itself; no late records, no two times are equal."""
    rows = []
    for entry in log:
        if entry.topic != "left" or entry.value is None:
            continue
        found = [
            other
            for other in log
            if other.topic == "right" and other.value is not None and other.key == entry.key and other.key is not None
            if entry.time - within <= other.time <= entry.time
        ]
        newest = max(found, key=lambda other: other.time, default=None)
        if newest is not None or kind == "left":
            rows.append((entry.key, entry.value["v"], newest and newest.value["v"], entry.time))
    return rows if kind == "left" else [row for row in rows if row[0] is not None]


def deduplicated(log: list[Entry], within: int, grace: int) -> list[Any]:
    """What passes of a log in order of processing, by key alone."""
    newest, passed = -1, []
    for entry in log:
        newest = max(newest, entry.time)
        if entry.key is None or entry.time < newest - grace:
            continue
        if not any(row[0] == entry.key and abs(row[2] - entry.time) < within for row in passed):
            passed.append((entry.key, None if entry.value is None else entry.value["v"], entry.time))
    return passed
