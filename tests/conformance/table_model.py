"""What tables hold in strict mode, from their definitions alone: an independent model for `random_tables`.

After each record a table is computed anew from the last values of its topics: a filtered table is the rows that match, a joined
one the pairs, a group the rows of its key. No order of updates, no old value and no store comes in. So a row that ceased to exist
and was not deleted, a row that was never deleted from its group, and one that is wrong until the next update all show.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from streams.operators.operator import Mode
from streams.testing import TopologyTestDriver
from tests.conformance.aggregates import joiner
from tests.conformance.build import build
from tests.conformance.case import Case
from tests.conformance.driver_engine import _feed, _mark
from tests.conformance.functions import is_number, predicate, value_function
from tests.conformance.json_values import canonical

Rows = dict[str, tuple[Any, Any]]
"""Text of a key -> key and value."""


class NotModelled(Exception):
    """A result that depends on more than the rows, such as a text that shows each subtraction."""


class Source:
    """The rows of a topic's table: the last to come, or in a versioned table those with the newest time."""

    def __init__(self, history: int | None) -> None:
        self.rows: Rows = {}
        self._history = history
        self._time = -1
        self._versions: dict[str, dict[int, Any]] = {}

    def take(self, record: dict[str, Any]) -> None:
        key, value, time = record["key"], record["value"], record["timestamp"]
        place = canonical(key)
        if self._history is not None:
            if time < self._time - self._history:
                return
            self._time = max(self._time, time)
            versions = self._versions.setdefault(place, {})
            versions[time] = value
            value = versions[max(versions)]
        if value is None:
            self.rows.pop(place, None)
        else:
            self.rows[place] = key, value

    def as_of(self, key: Any, time: int) -> Any:
        """The value at a time."""
        versions = self._versions.get(canonical(key), {})
        if not versions:
            return None
        if time < max(versions) and time < self._time - (self._history or 0):
            return None
        return versions[max(at for at in versions if at <= time)] if min(versions) <= time else None


class Model:
    """The tables of a case.

    Args:
        topology: Its nodes; `to` gives the tables that are compared.
    """

    def __init__(self, topology: Any) -> None:
        self.nodes = {node["id"]: node for node in topology}
        self.sources = {n["topic"]: Source(n.get("history_retention_ms")) for n in topology if n["op"] == "table"}
        streams = {n["id"]: n["in"] for n in topology if n["op"] == "to_stream"}
        self.sinks = {n["topic"]: streams[n["in"]] for n in topology if n["op"] == "to" and n["in"] in streams}

    def take(self, record: dict[str, Any]) -> None:
        if record["topic"] in self.sources:
            self.sources[record["topic"]].take(record)

    def table(self, name: str) -> Rows:
        """The rows of a table as they are now."""
        node = self.nodes[name]
        rows: dict[str, Callable[[dict[str, Any]], Rows]] = {
            "table": lambda node: self.sources[node["topic"]].rows,
            "filter": lambda node: self._filtered(node, True),
            "filter_not": lambda node: self._filtered(node, False),
            "map_values": self._mapped,
            "join": lambda node: self._joined(node, True, True),
            "left_join": lambda node: self._joined(node, True, False),
            "outer_join": lambda node: self._joined(node, False, False),
        }
        return rows.get(node["op"], self._grouped)(node)

    def is_forwarded_late(self, name: str) -> bool:
        """Whether older versions are forwarded, too, so that the last row is not the newest one."""
        node = self.nodes[name]
        if node["op"] == "table":
            return "history_retention_ms" in node
        return node["op"] in ("filter", "filter_not", "map_values") and self.is_forwarded_late(node["in"])

    def _filtered(self, node: dict[str, Any], wanted: bool) -> Rows:
        matches = predicate(node["predicate"])
        return {place: row for place, row in self.table(node["in"]).items() if matches(*row) is wanted}

    def _mapped(self, node: dict[str, Any]) -> Rows:
        fn = value_function(node["fn"])
        mapped = {place: (key, fn(key, value)) for place, (key, value) in self.table(node["in"]).items()}
        return {place: row for place, row in mapped.items() if row[1] is not None}

    def _joined(self, node: dict[str, Any], needs_left: bool, needs_right: bool) -> Rows:
        left, right, join = self.table(node["left"]), self.table(node["right"]), joiner(node["joiner"])
        found: Rows = {}
        for place in left | right:
            if (place in left or not needs_left) and (place in right or not needs_right):
                key = (left.get(place) or right[place])[0]
                value = join(None, left.get(place, (key, None))[1], right.get(place, (key, None))[1])
                if value is not None:
                    found[place] = key, value
        return found

    def _grouped(self, node: dict[str, Any]) -> Rows:
        group = self.nodes[node["in"]]
        if self.nodes[group["in"]]["op"] in ("count", "reduce", "aggregate"):
            raise NotModelled("a group of groups counts empty ones, which depend on what was there before")
        key_of, value_of = value_function(group["key_fn"]), value_function(group["value_fn"])
        members: dict[str, tuple[Any, list[Any]]] = {}
        for key, value in self.table(group["in"]).values():
            to, what = key_of(key, value), value_of(key, value)
            if to is not None and what is not None:
                members.setdefault(canonical(to), (to, []))[1].append(what)
        _aggregate(node, [])
        rows = ((place, key, _aggregate(node, values)) for place, (key, values) in members.items())
        return {place: (key, value) for place, key, value in rows if value is not None}


def _aggregate(node: dict[str, Any], values: list[Any]) -> Any:
    """An aggregate of values, which must not depend on more than these."""
    how = node.get("aggregator", node.get("adder", "count"))
    name, null_if = (how, None) if isinstance(how, str) else (how["fn"], how.get("null_if"))
    numbers = [value if is_number(value) else 0 for value in values]
    if name == "count" and null_if is None:
        return len(values)
    if name == "sum" and (node["op"] == "aggregate" or numbers == values):
        total = sum(numbers)
        return None if null_if is not None and predicate(null_if)(None, total) else total
    if name == "avg":
        return {"sum": sum(numbers), "count": len(values)}
    if name == "collect":
        return sorted(values, key=canonical)
    raise NotModelled(name)


def shown(value: Any) -> str:
    """A value as text; a list of collected values in any order."""
    return canonical(sorted(value, key=canonical) if isinstance(value, list) else value)


_EMPTY = {"0", "[]", canonical({"sum": 0, "count": 0})}
"""Aggregates of a group without rows, which stay."""


def differences(case: Case, mode: Mode = "strict") -> Iterator[str]:
    """What the engine has told otherwise than the definitions say, record after record."""
    topology = build(case.topology)
    model = Model(case.topology)
    sinks = {topic: table for topic, table in model.sinks.items() if not model.is_forwarded_late(table)}
    grouped = {topic for topic, table in sinks.items() if model.nodes[table]["op"] in ("count", "reduce", "aggregate")}
    modelled = set(sinks)
    told: dict[str, dict[str, str]] = {topic: {} for topic in sinks}
    with TopologyTestDriver(topology, mode=mode, rocksdb=False) as driver:
        for at, record in enumerate(case.records):
            if "topic" not in record:
                _mark(driver, record)
                continue
            _feed(driver, record)
            model.take(record)
            for topic, table in sinks.items():
                if topic not in modelled:
                    continue
                _tell(driver, topic, told[topic])
                try:
                    wanted = {place: shown(value) for place, (_, value) in model.table(table).items()}
                except NotModelled:
                    modelled.discard(topic)
                    continue
                found = told[topic]
                if topic in grouped:
                    found = {place: value for place, value in found.items() if value not in _EMPTY}
                    wanted = {place: value for place, value in wanted.items() if value not in _EMPTY}
                if found != wanted:
                    yield f"{case.name}: after record {at} {json.dumps(record)} '{topic}' is {found}, not {wanted}"
                    return


def _tell(driver: TopologyTestDriver, topic: str, told: dict[str, str]) -> None:
    for row in driver.create_output_topic(topic).read_records_to_list():
        place = canonical(row.key)
        if row.value is None:
            told.pop(place, None)
        else:
            told[place] = shown(row.value)
