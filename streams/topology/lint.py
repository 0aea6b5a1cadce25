"""Finds problems that a valid topology will cause later: `streams check`.

Each finding is either a problem, which should be solved before the program has state, or a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from streams.serdes.derived import DefaultKeySerde
from streams.serdes.json import is_plain_json
from streams.topology.graph import Graph, InternalTopic, Node, ProcessorNode, SinkNode, SourceNode
from streams.topology.naming import is_generated
from streams.topology.node_kind import NodeKind
from streams.topology.plan import Plan, SubTopology, plan_alone
from streams.topology.repeatable import changing_calls
from streams.topology.specs.streams import FilterSpec, MapValuesSpec, SelectKeySpec

_ENDS = {
    NodeKind.KSTREAM_FOREACH,
    NodeKind.KSTREAM_PRINTER,
    NodeKind.KSTREAM_PEEK,
    NodeKind.KSTREAM_PROCESSOR,
    NodeKind.KSTREAM_PROCESSVALUES,
    NodeKind.KSTREAM_BRANCHCHILD,
}
"""Kinds of operators that may end a stream: they do something of their own, or a branch is left out on purpose."""


_STORE = "count(materialized=Materialized(name='...'))"
_REPARTITION = "Grouped(name='...') or Repartitioned(name='...')"
_NAMED_BY: Mapping[str, str] = {
    "KSTREAM-JOINALL-": "join_all(..., StreamJoined(name='...'))",
    "KSTREAM-JOIN-": "join(..., StreamJoined(name='...'))",
    "KSTREAM-ASOF-": "as_of_join(..., StreamJoined(name='...'))",
    "KSTREAM-DEDUPLICATE-": "deduplicate(..., named='...')",
    "KTABLE-SUPPRESS-": "suppress(..., named='...')",
    "KTABLE-FK-JOIN-": "join(..., named='...')",
    "KTABLE-TOP-": "top(..., named='...')",
}
"""How the generated name of a store or topic begins -> what gives it a name instead, where that is an option of its operator."""


class Level(str, Enum):
    """How much a finding matters."""

    PROBLEM = "problem"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One finding.

    Attributes:
        rule: The rule's name.
        level: How much the finding matters.
        where: The node, store or topic.
        says: What is wrong, and what to write instead.
    """

    rule: str
    level: Level
    where: str
    says: str


def lint(topology: Graph) -> list[LintFinding]:
    """Returns all findings, problems first.

    Raises:
        TopologyError: The topology cannot be planned.
    """
    plan = plan_alone(topology)
    found = [
        *_generated_names(topology),
        *_loops(topology),
        *_dead_ends(topology),
        *_changing_functions(topology),
        *_leaving_columns(plan),
        *(
            LintFinding(
                "untyped-keys",
                Level.NOTE,
                entry.keyed_by[-1],
                "nothing says of what type the keys are that it makes, so they can only be text. For others, annotate what the "
                "function returns, or name the serde, as in group_by(..., Grouped(key_serde=...))",
            )
            for sub in plan.sub_topologies
            for entry in sub.entries
            if entry.keyed_by and isinstance(entry.key_serde, DefaultKeySerde) and not entry.key_serde.is_text
        ),
    ]
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda one: one.level is Level.NOTE)


def _generated_names(topology: Graph) -> Iterator[LintFinding]:
    # A table's store that is named after its topic keeps its name as long as the table reads that topic.
    after_topics = {f"{topic}-STATE-STORE" for source in topology.sources() for topic in source.topics}
    for name in topology.stores:
        if is_generated(name) and name not in after_topics:
            yield LintFinding(
                "generated-store-name",
                Level.PROBLEM,
                name,
                "the store has a generated name, which changes with the operators above it: its state would be lost then. Name it, "
                f"as in {_naming(name, _STORE)}",
            )
    topics = {topic for source in topology.sources() for topic in source.topics if isinstance(topic, InternalTopic)}
    for topic in sorted(topics, key=str):
        if is_generated(topic.name):
            yield LintFinding(
                "generated-repartition-name",
                Level.PROBLEM,
                str(topic),
                "the repartition topic has a generated name, which changes with the operators above it: records in it would be "
                "lost then. "
                f"Name it, as in {_naming(topic.name, _REPARTITION)}",
            )


def _naming(generated: str, otherwise: str) -> str:
    return next((option for start, option in _NAMED_BY.items() if generated.startswith(start)), otherwise)


def _loops(topology: Graph) -> Iterator[LintFinding]:
    for sink in topology.sinks():
        readers = [source for source in topology.sources() if _reads(source, sink)]
        if any(sink.name in _reached(topology, source.name) for source in readers):
            yield LintFinding(
                "loop",
                Level.PROBLEM,
                sink.name,
                f"what is written to the topic '{sink.topic}' is read again and comes back to it: each record goes round for ever, "
                f"unless something on the way drops it. Write to another topic",
            )


def _reads(source: SourceNode, sink: SinkNode) -> bool:
    if not isinstance(sink.topic, str):
        return False
    return sink.topic in source.topics or (source.pattern is not None and bool(source.pattern.fullmatch(sink.topic)))


def _reached(topology: Graph, start: str) -> set[str]:
    """Names of all nodes that records of a source may reach, including through topics."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting += topology.children(name)
        node = topology.nodes[name]
        if isinstance(node, SinkNode):
            waiting += [
                source.name for source in topology.sources() if node.topic in source.topics or _reads(source, node)
            ]
    return found


def _dead_ends(topology: Graph) -> Iterator[LintFinding]:
    for node in topology.nodes.values():
        if topology.children(node.name) or isinstance(node, SinkNode) or node.stores:
            continue
        if isinstance(node, ProcessorNode) and (not node.stateless or node.kind in _ENDS):
            continue
        yield LintFinding(
            "dead-end",
            Level.PROBLEM,
            node.name,
            "its results go nowhere. End the stream with to(...), or leave it out",
        )


def _changing_functions(topology: Graph) -> Iterator[LintFinding]:
    for node in topology.nodes.values():
        for call in changing_calls(node):
            keys = isinstance(node, ProcessorNode) and node.key_changing
            what = (
                "a repeated attempt gives records other keys, so that they would move to another task: the application stops with "
                "RoutingMismatchError. Make the key of the record alone, or put repartition() behind"
                if keys
                else "a repeated attempt gives another result. For the time, take the record's timestamp"
            )
            yield LintFinding(
                "changing-function",
                Level.PROBLEM if keys else Level.NOTE,
                node.name,
                f"its function ({call.place}) calls {call.called}: {what}",
            )


def _leaving_columns(plan: Plan) -> Iterator[LintFinding]:
    for sub in plan.sub_topologies:
        for name, reason in sub.columns.reasons.items():
            above, node = sub.nodes[reason.node], sub.nodes[name]
            if (
                not isinstance(node, ProcessorNode)
                or node.spec.projection is None
                or not isinstance(above, ProcessorNode)
            ):
                continue
            if isinstance(above.spec, FilterSpec | MapValuesSpec | SelectKeySpec) and _of_plain_json(sub, above):
                yield LintFinding(
                    "whole-records",
                    Level.NOTE,
                    above.name,
                    f"{reason.why}. '{name}' aggregates fields, and could read these alone, as columns, for a fraction of the work",
                )


def _of_plain_json(sub: SubTopology, node: Node) -> bool:
    """Whether all sources above a node have values whose fields can be columns: behind others, an expression gains nothing."""
    if isinstance(node, SourceNode):
        return is_plain_json(node.value_serde)
    return all(_of_plain_json(sub, sub.nodes[parent]) for parent in node.parents)
