"""The topology as a graph for the page: boxes with their properties, and arrows. The page places and draws them."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from typing import Any

from streams.topology.graph import Node, ProcessorNode, SinkNode, SourceNode
from streams.topology.plan import SubTopology, build_plan
from streams.topology.topology import Topology


def drawing(topology: Topology, application_id: str) -> dict[str, Any]:
    """The boxes of each sub-topology in the order of the data, and the arrows between them; topics have their real names."""
    plan = build_plan(topology, application_id)
    lines = topology.declared_at
    boxes: list[dict[str, Any]] = []
    arrows: list[dict[str, Any]] = []
    topics: dict[str, None] = {}
    for sub in plan.sub_topologies:
        timed = _timed(sub)
        for name, node in sub.nodes.items():
            boxes.append({**_node(sub, name, node, lines.get(name)), "timed_as": timed[name]})
            arrows += [{"from": parent, "to": name} for parent in node.parents]
            arrows += [{"from": name, "to": f"store:{store}", "store": True} for store in node.stores]
            for topic, reads in _topics(node):
                topics.setdefault(topic)
                ends = (f"topic:{topic}", name) if reads else (name, f"topic:{topic}")
                arrows.append({"from": ends[0], "to": ends[1]})
        boxes += [_store(sub, name, lines.get(name)) for name in sub.stores]
    internal = plan.repartition_topics
    boxes += [{"id": f"topic:{name}", "kind": "topic", "name": name, "internal": name in internal} for name in topics]
    return {
        "sub_topologies": [{"sub_topology": sub.name, "index": sub.index} for sub in plan.sub_topologies],
        "boxes": boxes,
        "arrows": arrows,
        "global_tables": [
            {"store": store, "topic": str(table.source.topics[0]), "line": lines.get(table.name)}
            for store, table in plan.topology.global_tables.items()
        ],
        "lake_sinks": [
            {"sink": sink.name, "topic": sink.topic.topic_name(application_id), "target": sink.target_text}
            for sink in topology.lake_sinks.values()
        ],
    }


def _node(sub: SubTopology, name: str, node: Node, line: str | None) -> dict[str, Any]:
    in_reader = isinstance(node, SourceNode) or name in sub.head
    found: dict[str, Any] = {
        "id": name,
        "name": name,
        "sub_topology": sub.name,
        "runs_in": "reader" if in_reader else "task",
        **_line(line),
    }
    if isinstance(node, ProcessorNode):
        kind, parameters = (
            str(node.kind),
            {key: None if value is None else str(value) for key, value in node.parameters},
        )
        return {**found, "kind": "operator", "operator": kind, "parameters": parameters, **_serdes(node)}
    return {**found, "kind": "source" if isinstance(node, SourceNode) else "sink", **_serdes(node)}


def _timed(sub: SubTopology) -> dict[str, list[str]]:
    """Node -> the names under which its CPU time is counted (`streams.engine.graph.settings`)."""
    found: dict[str, list[str]] = {}
    for name, node in sub.nodes.items():
        if isinstance(node, SourceNode):
            found[name] = [name]
        elif name in sub.head:
            found[name] = sorted({one for parent in node.parents for one in found[parent]})
    for unit in sub.units:
        for names in unit.timed:
            found |= {name: [names[0]] for name in names}
    return found


def _serdes(node: Node) -> dict[str, str | None]:
    """The names of the serdes that read or write a node's records."""
    names = (None if serde is None else type(serde).__name__ for serde in (node.key_serde, node.value_serde))
    return dict(zip(("key_serde", "value_serde"), names, strict=True))


def _line(line: str | None) -> dict[str, str | None]:
    """The line of the user's code that added a node: its place, and the code."""
    found = re.fullmatch(r"(.+), line (\d+)", line or "")
    code = linecache.getline(found[1], int(found[2])).strip() if found else ""
    return {"line": line, "code": code or None}


def _store(sub: SubTopology, name: str, line: str | None) -> dict[str, Any]:
    spec = sub.stores[name].spec
    return {
        "id": f"store:{name}",
        "kind": "store",
        "name": name,
        "sub_topology": sub.name,
        "runs_in": "task",
        **_line(line),
        "store_kind": spec.kind.value,
        "logged": spec.logged,
        "persistent": spec.persistent,
    }


def _topics(node: Node) -> Iterator[tuple[str, bool]]:
    """The topics of a node, each with whether the node reads it."""
    if isinstance(node, SourceNode):
        yield from ((str(topic), True) for topic in (node.topics or node.subscription))
    elif isinstance(node, SinkNode) and node.topic is not None:
        yield str(node.topic), False
