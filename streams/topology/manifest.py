"""The manifest of a topology: its persistent parts by name, as plain JSON, stored with each checkpoint and compared by `diff`.

Invariants: a manifest has no application id, so that a program can be described without being run; equal topologies have equal
manifests; functions are left out (their text does not identify them) except for a digest of the conditions of table filters, and so
are the addresses to which serdes connect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import orjson

from streams.model.expressions import Expression
from streams.serdes.base import serde_identity
from streams.serdes.json import fields_of
from streams.topology.graph import Graph, InternalTopic, Node, ProcessorNode, SinkNode, SourceNode, StoreNode
from streams.topology.plan import Plan, SubTopology, nearest_lasting, plan_alone, topology_hash, with_added_topics
from streams.topology.planning.sub_topologies import sub_topology_name
from streams.topology.specs.base import TableSpec
from streams.topology.specs.streams import FilterSpec
from streams.topology.specs.tables import TableFilterSpec
from streams.topology.users_functions import code_digest

Manifest: TypeAlias = dict[str, Any]
G = TypeVar("G", bound=Graph)

EXPRESSION = "expression"
"""Prefix of the description of a condition that is an expression. Other descriptions begin with a version of Python."""

FORMAT = 1
"""Changes when an older program could misread a description."""


def manifest(topology: Graph) -> Manifest:
    """Makes the manifest of a program that is not run, as `plan_manifest` does of a plan.

    Raises:
        TopologyError: The topology cannot be planned.
    """
    return plan_manifest(plan_alone(topology))


def manifest_json(topology: Graph) -> str:
    """Makes the manifest of a program as indented JSON text, for files under version control."""
    return orjson.dumps(manifest(topology), option=orjson.OPT_INDENT_2).decode()


def plan_manifest(plan: Plan, known: Sequence[str] | None = None) -> Manifest:
    """Makes `{"format", "sub_topologies": {name: ...}, "repartition_topics": {name: partitions}, "global_tables": {store: topic}}`.

    A sub-topology has `hash` (of its structure, without the application's id), `sources` (name -> topics), `operators`
    (stateful ones: kind, stores, parameters, inputs), `stateless` (name -> kind), `sinks` (name -> topic; None:
    chosen by the record), `stores` (name -> kind, serdes, fields of typed values, retention in ms, ...) and `filters` (those of
    tables: the sinks and operators after them, and a digest of their conditions). `topic_fields` has the fields of the records
    in repartition topics. `given_tables` has the topics of global tables whose rows the program gives. `repartitioned` is there if
    the plan has added repartition topics where keys change their task: the sources followed by one, and why.
    """
    topology = plan.topology
    tables = topology.global_tables.items()
    return {
        "format": FORMAT,
        "sub_topologies": {
            _name(topology, sub, known): _sub_topology(topology, list(sub.nodes)) for sub in plan.sub_topologies
        },
        "repartition_topics": {str(topic): topic.partitions for topic in topology.internal_topics()},
        **({"topic_fields": topics} if (topics := _topic_fields(topology)) else {}),
        "global_tables": {name: table.lasting_topic for name, table in tables},
        **({"given_tables": given} if (given := [table.lasting_topic for _, table in tables if table.given]) else {}),
        **({"lake_sinks": lakes} if (lakes := _lake_sinks(topology)) else {}),
        **({} if topology.repartitioned is None else {"repartitioned": dict(topology.repartitioned)}),
    }


def as_written(topology: G, written: Mapping[str, Any]) -> G:
    """Adds the repartition topics that the described program has."""
    sources = written.get("repartitioned")
    return topology if sources is None else with_added_topics(topology, sources)


def _topic_fields(topology: Graph) -> Manifest:
    """The fields of the typed records in the application's internal topics."""
    found = {
        str(topic): _fields(source)
        for source in topology.sources()
        for topic in source.topics
        if isinstance(topic, InternalTopic)
    }
    return {name: fields["fields"] for name, fields in found.items() if fields}


def _lake_sinks(topology: Graph) -> Manifest:
    """Each sink outside Kafka: its target, its columns with their types, and its keys."""
    return {
        name: {
            "target": sink.target_text,
            "topic": str(sink.topic),
            "columns": {column.name: column.type.sql for column in sink.layout.columns},
            "keys": list(sink.layout.keys),
        }
        for name, sink in topology.lake_sinks.items()
    }


def _name(topology: Graph, sub: SubTopology, known: Sequence[str] | None) -> str:
    if known is None:
        return sub.name
    declared = [node for name in sub.nodes if isinstance(node := topology.nodes[name], SourceNode)]
    return sub_topology_name(declared, known)


def _sub_topology(topology: Graph, names: list[str]) -> Manifest:
    nodes = {name: topology.nodes[name] for name in names}
    stores = {store: topology.stores[store] for node in nodes.values() for store in node.stores}
    processors = [node for node in nodes.values() if isinstance(node, ProcessorNode)]
    return {
        "hash": topology_hash(nodes, stores),
        # Sources of retry topics may come and go. Their topics are among the repartition topics, and the sinks' topics.
        "sources": {
            name: list(node.subscription)
            for name, node in nodes.items()
            if isinstance(node, SourceNode) and not node.retries
        },
        "operators": {
            node.name: {
                "kind": node.kind.value,
                "stores": sorted(node.stores),
                "parameters": dict(node.parameters),
                "reads": nearest_lasting(nodes, node),
            }
            for node in processors
            if not node.stateless
        },
        "stateless": {node.name: node.kind.value for node in processors if node.stateless},
        "sinks": {
            name: None if node.topic is None else str(node.topic)
            for name, node in nodes.items()
            if isinstance(node, SinkNode)
        },
        "stores": {name: _store(store) for name, store in stores.items()},
        **({"filters": filters} if (filters := _filters(nodes)) else {}),
    }


def _filters(nodes: Mapping[str, Node]) -> Manifest:
    """The filters of tables that keep no rows: the nodes after them, and what identifies their conditions."""
    return {
        name: {
            "sinks": sorted({one.name for one in _reached(nodes, name) if isinstance(one, SinkNode)}),
            "operators": sorted({one.name for one in _reached(nodes, name) if isinstance(one, ProcessorNode)}),
            "condition": _condition(node.spec),
        }
        for name, node in nodes.items()
        if isinstance(node, ProcessorNode)
        and isinstance(node.spec, FilterSpec | TableFilterSpec)
        and not node.stores
        and is_of_table(nodes, node)
    }


def is_of_table(nodes: Mapping[str, Node], node: Node) -> bool:
    """Whether the records of a node are rows of a table, with their keys."""
    if isinstance(node, ProcessorNode) and isinstance(node.spec, TableSpec):
        return True
    if not isinstance(node, ProcessorNode) or not node.stateless or node.key_changing:
        return False
    return all(parent in nodes and is_of_table(nodes, nodes[parent]) for parent in node.parents)


def _reached(nodes: Mapping[str, Node], name: str) -> Iterator[Node]:
    """The sinks and the stateful operators that get a node's results."""
    for child in (one for one in nodes.values() if name in one.parents):
        if isinstance(child, SinkNode) or (isinstance(child, ProcessorNode) and not child.stateless):
            yield child
        else:
            yield from _reached(nodes, child.name)


def _condition(spec: FilterSpec | TableFilterSpec) -> str | None:
    """Identifies a filter's condition; None if that is impossible."""
    given = getattr(spec.predicate, "__wrapped__", spec.predicate)
    found = f"{EXPRESSION}:{given!r}" if isinstance(given, Expression) else code_digest(given)
    return None if found is None else f"not {found}" if spec.negate else found


def _store(store: StoreNode) -> Manifest:
    spec = store.spec
    return {
        "kind": spec.kind.value,
        "key_serde": serde_identity(store.key_serde),
        "value_serde": serde_identity(store.value_serde),
        "retention_ms": spec.retention_ms,
        "retain_duplicates": spec.retain_duplicates,
        "persistent": spec.persistent,
        "logged": spec.logged,
        "changelog_config": dict(spec.changelog_config),
        **_fields(store),
    }


def _fields(rows: StoreNode | SourceNode) -> Manifest:
    """The fields of typed keys and values, which are not part of a serde's identity."""
    found = {"key": fields_of(rows.key_serde), "value": fields_of(rows.value_serde)}
    known = {name: fields for name, fields in found.items() if fields is not None}
    return {"fields": known} if known else {}
