"""Finds problems that a valid topology will cause later (`streams check`), to solve them before there is state; and notes."""

from __future__ import annotations

import dis
import random
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streams.serdes.by_type import DefaultKeySerde
from streams.serdes.json import is_plain_json
from streams.topology.graph import Graph, InternalTopic, Node, ProcessorNode, SinkNode, SourceNode
from streams.topology.manifest import is_of_table
from streams.topology.naming import is_generated
from streams.topology.node_kind import NodeKind
from streams.topology.plan import Plan, SubTopology, plan_alone
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.joins import StreamJoinSpec, StreamSelfJoinSpec
from streams.topology.specs.streams import FilterSpec, MapValuesSpec, SelectKeySpec
from streams.topology.specs.tables import SuppressSpec, TableFilterSpec
from streams.topology.users_functions import users_functions

# --- Functions whose results differ in each attempt
#
# A step may be repeated after a failure. If such a function computes a key, the repeated record goes to another task, and the
# engine stops with `RoutingMismatchError`. The search reads compiled code and calls nothing.

_CHANGING = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "os.urandom",
    "time.monotonic",
    "time.perf_counter",
    "time.time",
    "time.time_ns",
    "uuid.uuid1",
    "uuid.uuid4",
}
_CHANGING_MODULES = ("random.", "secrets.", "numpy.random.")


@dataclass(frozen=True, slots=True)
class ChangingCall:
    """A call whose result differs in each attempt.

    Attributes:
        called: The called function, such as `random.random`.
        place: File and line of the calling function.
    """

    called: str
    place: str


def changing_calls(node: Any) -> list[ChangingCall]:
    """Finds such calls in the functions and classes that a program has passed to a node."""
    found = (
        ChangingCall(called, f"{function.__code__.co_filename}, line {function.__code__.co_firstlineno}")
        for function in users_functions(node)
        for called in _changing(function.__code__, function.__globals__)
    )
    return list(dict.fromkeys(found))


def _changing(code: types.CodeType, names: Mapping[str, Any]) -> Iterator[str]:
    value: Any = None
    for step in dis.get_instructions(code):
        if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            value = names.get(str(step.argval))
        elif step.opname in {"LOAD_ATTR", "LOAD_METHOD"} and value is not None:
            value = getattr(value, str(step.argval), None)
        elif step.opname not in {"CACHE", "PUSH_NULL"}:
            value = None
        if (called := _name(value)) is not None:
            yield called
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _changing(constant, names)


def _name(value: Any) -> str | None:
    """The full name of a function whose results change; None for everything else."""
    if not callable(value) or isinstance(value, type):
        return None
    owner = getattr(value, "__self__", None)
    if isinstance(owner, random.Random):
        name = f"random.{value.__name__}"
    elif isinstance(owner, type):
        name = f"{owner.__module__}.{owner.__qualname__}.{value.__name__}"
    else:
        name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    name = name.replace("posix.", "os.")
    return name if name in _CHANGING or name.startswith(_CHANGING_MODULES) else None


_ENDS = {
    NodeKind.KSTREAM_FOREACH,
    NodeKind.KSTREAM_PRINTER,
    NodeKind.KSTREAM_PEEK,
    NodeKind.KSTREAM_PROCESSOR,
    NodeKind.KSTREAM_PROCESSVALUES,
    NodeKind.KSTREAM_BRANCHCHILD,
}
"""Kinds of operators that may end a stream: they have effects of their own, or a branch is left unused on purpose."""


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
"""Prefix of a generated name of a store or topic -> the option that names it instead, if its operator has one."""


class Level(str, Enum):
    """How serious a finding is."""

    PROBLEM = "problem"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One finding.

    Attributes:
        rule: The rule's name.
        level: How serious the finding is.
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
        *_late_rows_of_joins(topology),
        *_filters_before_suppress(topology),
        *_filtered_rows(topology),
        *(
            LintFinding(
                "untyped-keys",
                Level.NOTE,
                entry.keyed_by[-1],
                "the type of its keys is not known, so they can only be text. For other types, annotate the function's return "
                "type, or name the serde, as in group_by(..., Grouped(key_serde=...))",
            )
            for sub in plan.sub_topologies
            for entry in sub.entries
            if entry.keyed_by and isinstance(entry.key_serde, DefaultKeySerde) and not entry.key_serde.is_text
        ),
    ]
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda one: one.level is Level.NOTE)


def _generated_names(topology: Graph) -> Iterator[LintFinding]:
    # A store named after its table's topic keeps its name as long as the table reads that topic.
    after_topics = {f"{topic}-STATE-STORE" for source in topology.sources() for topic in source.topics}
    for name in topology.stores:
        if is_generated(name) and name not in after_topics:
            yield LintFinding(
                "generated-store-name",
                Level.PROBLEM,
                name,
                "the store has a generated name, which changes with the operators above it: its state would then be lost. Name "
                f"it, as in {_naming(name, _STORE)}",
            )
    topics = {topic for source in topology.sources() for topic in source.topics if isinstance(topic, InternalTopic)}
    for topic in sorted(topics, key=str):
        if is_generated(topic.name):
            yield LintFinding(
                "generated-repartition-name",
                Level.PROBLEM,
                str(topic),
                "the repartition topic has a generated name, which changes with the operators above it: records in it would "
                f"then be lost. Name it, as in {_naming(topic.name, _REPARTITION)}",
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
                f"what is written to the topic '{sink.topic}' is read again and comes back to it: each record loops forever, "
                f"unless an operator drops it. Write to another topic",
            )


def _reads(source: SourceNode, sink: SinkNode) -> bool:
    if not isinstance(sink.topic, str):
        return False
    return sink.topic in source.topics or (source.pattern is not None and bool(source.pattern.fullmatch(sink.topic)))


def _reached(topology: Graph, start: str) -> set[str]:
    """The names of all nodes that records of a source may reach, including those behind topics."""
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
            waiting += [one.name for one in topology.sources() if node.topic in one.topics or _reads(one, node)]
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
            "nothing uses its results. End the stream with to(...), or remove it",
        )


def _changing_functions(topology: Graph) -> Iterator[LintFinding]:
    for node in topology.nodes.values():
        for call in changing_calls(node):
            keys = isinstance(node, ProcessorNode) and node.key_changing
            what = (
                "a repeated attempt gives records other keys, which would move them to another task: the application stops "
                "with RoutingMismatchError. Make the key from the record alone, or add repartition() after it"
                if keys
                else "a repeated attempt gives another result. If you need the time, use the record's timestamp"
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
                    f"{reason.why}. '{name}' aggregates fields, and could read only these, as columns, at a fraction of the cost",
                )


# --- Problems that stay unnoticed: rows that come late because of operators above, or that are never deleted.


def _late_rows_of_joins(topology: Graph) -> Iterator[LintFinding]:
    for node in topology.nodes.values():
        windows = (
            node.spec.windows if isinstance(node, ProcessorNode) and isinstance(node.spec, AggregationSpec) else None
        )
        if windows is None or not windows.closes:
            continue
        above = (one.spec for one in _passing_on(topology, node))
        for join in dict.fromkeys(spec.join for spec in above if isinstance(spec, StreamJoinSpec | StreamSelfJoinSpec)):
            wait_ms = max(join.windows.before_ms, join.windows.after_ms, 0) + join.windows.grace_ms
            if join.join_kind != "inner" and windows.grace_ms < wait_ms:
                yield LintFinding(
                    "late-rows-of-a-join",
                    Level.NOTE,
                    node.name,
                    f"its windows wait {windows.grace_ms} ms for late records, but records without a match leave the "
                    f"{join.join_kind} join above up to {wait_ms} ms after their time, behind newer pairs, and are dropped. "
                    f"Give the windows a grace of at least {wait_ms} ms",
                )


def _passing_on(topology: Graph, node: Node) -> Iterator[ProcessorNode]:
    """The operators above a node whose results arrive there with unchanged times."""
    waiting, seen = list(node.parents), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        above = topology.nodes[name]
        if isinstance(above, ProcessorNode):
            yield above
            if isinstance(above.spec, AggregationSpec | SuppressSpec):
                continue
            waiting += above.parents
        elif isinstance(above, SourceNode):
            waiting += [sink.name for sink in topology.sinks() if sink.topic in above.topics]
        else:
            waiting += above.parents


def _filters_before_suppress(topology: Graph) -> Iterator[LintFinding]:
    for node in topology.nodes.values():
        if (
            not isinstance(node, ProcessorNode)
            or not isinstance(node.spec, SuppressSpec)
            or not node.spec.rules.by_window
        ):
            continue
        for above in _passing_on(topology, node):
            if isinstance(above.spec, AggregationSpec):
                break
            if isinstance(above.spec, TableFilterSpec | FilterSpec):
                yield LintFinding(
                    "filter-before-suppress",
                    Level.NOTE,
                    above.name,
                    f"it comes before '{node.name}', whose windows close by the time of the updates that get there: they "
                    f"stay open until a later update passes the filter, perhaps forever. Filter after suppress, or emit on close "
                    f"(emit_strategy)",
                )


def _filtered_rows(topology: Graph) -> Iterator[LintFinding]:
    for node in topology.nodes.values():
        if not isinstance(node, ProcessorNode) or not isinstance(node.spec, FilterSpec):
            continue
        topics = [sink.topic for sink in _sinks_of_rows(topology, node) if isinstance(sink.topic, str)]
        # The results of an aggregation are often filtered for alerts, where nothing has to be deleted.
        if topics and is_of_table(topology.nodes, node) and not any(_aggregated(topology, node)):
            yield LintFinding(
                "filtered-rows",
                Level.NOTE,
                node.name,
                f"it drops the rows that do not pass, so an earlier row stays in the topic '{topics[0]}' if "
                f"that is compacted or read as a table. Filter the table instead, which deletes it: table.filter(...).to_stream()",
            )


def _aggregated(topology: Graph, node: Node) -> Iterator[bool]:
    """Yields for each operator that makes the rows of a node whether it is an aggregation."""
    for name in node.parents:
        above = topology.nodes[name]
        if isinstance(above, ProcessorNode):
            yield isinstance(above.spec, AggregationSpec)
            yield from _aggregated(topology, above)


def _sinks_of_rows(topology: Graph, node: Node) -> Iterator[SinkNode]:
    """The sinks that get a node's results with unchanged keys."""
    for name in topology.children(node.name):
        child = topology.nodes[name]
        if isinstance(child, SinkNode):
            yield child
        elif isinstance(child, ProcessorNode) and child.stateless and not child.key_changing:
            yield from _sinks_of_rows(topology, child)


def _of_plain_json(sub: SubTopology, node: Node) -> bool:
    """Whether all sources above a node have values whose fields can be columns. For other values, an expression gains nothing."""
    if isinstance(node, SourceNode):
        return is_plain_json(node.value_serde)
    return all(_of_plain_json(sub, sub.nodes[parent]) for parent in node.parents)
