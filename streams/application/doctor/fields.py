"""Fields that the program reads by name and that no record has: perhaps misspelt, and null without an error.

Where the type of values is known, building the topology refuses such a name (`dsl.nodes.result_types.check_fields`). JSON without a
type may have any fields, so the newest records of each topic are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from state.errors import StreamsError
from streams.application.doctor.findings import Finding, Place, Severity
from streams.application.doctor.inspection import Inspection
from streams.serdes.json import JsonSerde
from streams.suggest import did_you_mean
from streams.topology.graph import ProcessorNode, SourceNode
from streams.topology.plan import SubTopology
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.base import Keeps, Keys, NodeSpec
from streams.topology.specs.streams import FilterSpec, MapValuesSpec, SelectKeySpec

SAMPLE = 500
"""How many of the newest records of a topic are looked at, over all partitions."""
FEWEST = 20
"""With fewer objects than this nothing is said: a field may be rare."""


def fields(inspection: Inspection) -> Iterator[Finding]:
    """Compares the fields that the program reads with those of the newest records."""
    for prepared in inspection.application.subs:
        for node in prepared.sub.nodes.values():
            if (
                isinstance(node, SourceNode)
                and isinstance(node.value_serde, JsonSerde)
                and node.value_serde.kind is None
            ):
                read = dict(_reads(prepared.sub, node.name))
                for topic in sorted(map(str, node.topics)) if read else ():
                    yield from _unseen(inspection, prepared.sub.name, topic, node.value_serde, read)


def _reads(sub: SubTopology, parent: str) -> Iterator[tuple[str, str]]:
    """Each path that is read from the values of a node, with the node that reads it."""
    for name in sub.children(parent):
        node = sub.nodes[name]
        if isinstance(node, ProcessorNode):
            yield from ((path, name) for path in _paths(node.spec))
            if isinstance(node.spec, FilterSpec | SelectKeySpec):
                yield from _reads(sub, name)  # values pass unchanged


def _paths(spec: NodeSpec) -> Sequence[str]:
    if isinstance(spec, AggregationSpec):
        return () if isinstance(spec.fields, str) else spec.fields
    function = spec.on_columns
    if isinstance(function, Keeps):
        return function.where.paths
    if isinstance(function, Keys):
        return function.key.paths
    if isinstance(spec, MapValuesSpec) and spec.fields is not None:
        return [path for _, expression in spec.fields.computed for path in expression.paths]
    return ()


def _unseen(
    inspection: Inspection, sub: str, topic: str, serde: JsonSerde[Any], read: Mapping[str, str]
) -> Iterator[Finding]:
    objects = _newest(inspection, topic, serde)
    if len(objects) < FEWEST:
        return
    for path, node in read.items():
        if not any(_has(value, path) for value in objects):
            names = dict.fromkeys(str(name) for value in objects for name in value)
            yield Finding(
                Severity.NOTE,
                f"'{node}' reads the field {path!r}, which none of the last {len(objects)} objects has, so it is null there."
                f"{did_you_mean(path, names)}",
                place=Place(sub, topic=topic),
            )


def _newest(inspection: Inspection, topic: str, serde: JsonSerde[Any]) -> list[dict[str, Any]]:
    """The objects among the newest records of a topic."""
    places = inspection.partitions([topic])
    begins, ends = inspection.admin.begin_offsets(places), inspection.admin.end_offsets(places)
    found = []
    for place in places:
        begin = max(begins[place], ends[place] - SAMPLE // len(places))
        for columns in inspection.kafka.read(*place, begin, ends[place]):
            for cell in columns.values.to_pylist():
                try:
                    value = serde.deserialize(topic, cell, ())
                except StreamsError:
                    continue
                if isinstance(value, dict):
                    found.append(value)
    return found


def _has(value: Any, path: str) -> bool:
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return True
