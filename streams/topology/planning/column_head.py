"""The operators of a head that work on columns: filters, mappers and new keys by expressions.

The fields that each one reads are pushed down to the source, which decodes only these (projection), and rows that a filter leaves
out never leave the reader (predicate push-down). After the head, aggregates of fields get the fields as columns. All other nodes,
sinks above all, get whole values, which the reader writes as JSON without making objects of them. If one operator of the head takes
whole records, the whole branch above it works on records, since the branch would otherwise be processed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from streams.model.expressions import KEY, OF_RECORD, Col, ValueFields
from streams.model.paths import first_and_rest
from streams.serdes.base import Serde, serde_identity
from streams.serdes.exactness import reads_alone
from streams.serdes.json import is_plain_json
from streams.serdes.primitives import BooleanSerde, Float64Serde, Int32Serde, Int64Serde, StringSerde
from streams.topology.graph import Node, ProcessorNode, SourceNode
from streams.topology.specs.base import ColumnFunction, Keeps, Unwraps

Paths: TypeAlias = dict[str, None]
"""Distinct dotted paths, in order."""

WHOLE: Final = ""
"""The path of the value itself."""

_WRAPPED = "is wrapped, and wrappers see whole records"

KeySerde: TypeAlias = Callable[[Node, Node], Serde]
"""Receiving node and sending node -> the serde of keys between them."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node does not work on columns.

    Attributes:
        node: The node that is the cause.
        why: What that node does: the rest of a sentence that begins with its name.
    """

    node: str
    why: str

    def told_by(self, node: str) -> str:
        """The reason as a sentence about `node`. Its subject is left out if it is the same node."""
        return self.why if node == self.node else f"'{self.node}' {self.why}"


@dataclass(frozen=True, slots=True)
class ColumnStep:
    """One operator of the head on columns.

    Attributes:
        node: Its name.
        parent: The name of the source, or of the step, whose columns it takes.
        source: The name of the source.
        does: What it does.
        moved: For `ValueFields` and `Unwraps`, the paths that are copied and not computed: path after the step -> path before it.
        whole: Whether a later node takes whole values.
    """

    node: str
    parent: str
    source: str
    does: ColumnFunction
    moved: tuple[tuple[str, str], ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """The part of the program before a task that works on columns.

    Attributes:
        steps: The operators, in run order.
        aggregates: Names of the nodes of the task that get columns.
        scanning: Names of the nodes of the task that get the JSON texts that joins make, and read fields from them.
        paths: Source -> the dotted paths to decode. `WHOLE` is one of them if a node takes whole values.
        reasons: Node that reads fields, or operator that works on columns -> why it gets whole records.
    """

    steps: tuple[ColumnStep, ...] = ()
    aggregates: frozenset[str] = frozenset()
    scanning: frozenset[str] = frozenset()
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)

    def source_of(self, name: str) -> str:
        """The source of the columns of a step. A source's own name stays."""
        return next((step.source for step in self.steps if step.node == name), name)


def column_head(nodes: Mapping[str, Node], head: Collection[str], key_serde: KeySerde) -> ColumnHead:
    """Decides which nodes work on columns."""
    return _Search(nodes, head, key_serde).found()


def _sees_changes(node: ProcessorNode, other: Node) -> bool:
    """Whether another node sees an aggregation's store change within a step.

    It does not if it only looks up rows as they were last forwarded, and the aggregation forwards at the end of the step.
    """
    if not isinstance(other, ProcessorNode) or not (shared := set(other.stores) & set(node.stores)):
        return False
    at_end = other.spec.sees_forwarded and node.spec.forwards_at_end(node.stores)
    return not (at_end and shared.isdisjoint(other.spec.uses(other.stores)))


class _Search:
    """Looks at the nodes from the last to the first, because what a node needs depends on the nodes below it."""

    def __init__(self, nodes: Mapping[str, Node], head: Collection[str], key_serde: KeySerde) -> None:
        self._nodes = nodes
        self._head = head
        self._key_serde = key_serde
        self._needs: dict[str, Paths] = {}
        self._moved: dict[str, dict[str, str]] = {}
        self._reasons: dict[str, Reason] = {}
        """Head node or aggregate -> why it takes whole records."""

    def found(self) -> ColumnHead:
        processors = [node for node in self._nodes.values() if isinstance(node, ProcessorNode)]
        for node in processors:
            if node.name not in self._head and (why := self._why_no_columns(node)) is not None:
                self._reasons[node.name] = why
        for node in reversed(processors):
            if node.name in self._head and (why := self._why_no_step(node)) is not None:
                self._reasons[node.name] = why
        scanning = {node.name for node in processors if node.name not in self._head and self._scans(node)}
        steps = self._steps()
        on_columns = {step.node for step in steps}
        others = {*self._head, *self._reasons, *scanning}
        aggregates = {node.name for node in processors if node.name not in others and self._fed_by(node, on_columns)}
        paths = {
            source.name: tuple(self._needed_of(source.name, on_columns | aggregates))
            for source in self._nodes.values()
            if isinstance(source, SourceNode)
        }
        return ColumnHead(tuple(steps), frozenset(aggregates), frozenset(scanning), paths, self._reasons)

    def _why_no_columns(self, node: ProcessorNode) -> Reason | None:
        """Why a node of the task always takes whole records; None if it need not."""
        if node.wrapper is not None:
            return Reason(node.name, _WRAPPED)
        if node.spec.projection is None:
            return Reason(node.name, node.spec.whole_records)
        looked_up = [other.name for other in self._nodes.values() if other is not node and _sees_changes(node, other)]
        if looked_up:
            return Reason(
                looked_up[0], f"uses the store of '{node.name}', which columns change at the end of a micro-batch"
            )
        return None

    def _scans(self, node: ProcessorNode) -> bool:
        """Whether a node of the task reads fields from the JSON texts that the joins above it make."""
        if node.name in self._reasons or not (node.spec.takes_several and node.parents):
            return False
        drops_are_taken = any(
            isinstance(other, ProcessorNode) and other.takes_dropped and node.name in other.parents
            for other in self._nodes.values()
        )
        return not drops_are_taken and all(map(self._gives_texts, node.parents))

    def _gives_texts(self, name: str) -> bool:
        node = self._nodes[name]
        if not isinstance(node, ProcessorNode) or node.wrapper is not None:
            return False
        return node.spec.gives_texts or (node.spec.passes_texts and all(map(self._gives_texts, node.parents)))

    def _why_no_step(self, node: ProcessorNode) -> Reason | None:
        """Why a node of the head takes whole records. If it need not, notes the fields that it reads and returns None."""
        does = node.spec.on_columns
        if isinstance(does, str):
            return Reason(node.name, does)
        if node.wrapper is not None:
            return Reason(node.name, _WRAPPED)
        children = [child for child in self._nodes.values() if node.name in child.parents]
        if not children:
            return Reason(node.name, "feeds nothing")
        needed: Paths = {}
        for child in children:
            if (why := self._why_no_columns_between(node, child)) is not None:
                return why
            needed |= self._needs_of(child)
        self._needs[node.name] = needed
        inside = self._inside_computed(node.name, does, needed)
        return None if inside is None else Reason(node.name, inside)

    def _why_no_columns_between(self, node: ProcessorNode, child: Node) -> Reason | None:
        if child.name in self._head:
            return self._reasons.get(child.name)
        if isinstance(child, ProcessorNode) and child.takes_dropped:
            return Reason(child.name, f"takes what '{node.name}' drops")
        serde = self._key_serde(child, node)
        if self._new_keys(node.name):
            # If several records have a key, it is written once, so it must not depend on their headers.
            return None if reads_alone(serde) else Reason(child.name, f"has keys of {serde!r}, which may use headers")
        source = self._source_above(node.name)
        same_keys = source is None or serde_identity(serde) == serde_identity(source.key_serde)
        return None if same_keys else Reason(child.name, "has another serde of keys than the source")

    def _inside_computed(self, name: str, does: ColumnFunction, needed: Iterable[str]) -> str | None:
        """Notes the paths that a mapper copies. Returns why some of them are not columns, or None."""
        if isinstance(does, Unwraps):
            inside = {path: f"{does.field.path}.{path}" for path in needed if path != WHOLE}
            self._moved[name] = {path: path if path in OF_RECORD else before for path, before in inside.items()}
        if not isinstance(does, ValueFields):
            return None
        computed = dict(does.computed)
        moved = self._moved[name] = {}
        for path in needed:
            if path == WHOLE:
                continue
            if path in OF_RECORD:
                moved[path] = path
                continue
            first, rest = first_and_rest(path)
            expression = computed.get(first)
            if expression is None:
                if does.everything and not first.isdecimal():
                    moved[path] = path
                elif does.everything:
                    return f"makes an object, but '{path}' is an element of an array"
            elif rest and not isinstance(expression, Col):
                return f"computes the field that '{path}' is within"
            elif rest and isinstance(expression, Col):
                moved[path] = f"{expression.path}.{rest}"
        return None

    def _needs_of(self, node: Node) -> Paths:
        """The fields of a value that a node, or a node after it, reads."""
        if not isinstance(node, ProcessorNode):
            return {WHOLE: None}
        if node.name not in self._head:
            return {WHOLE: None} if node.name in self._reasons else dict.fromkeys(node.spec.projection or ())
        does = node.spec.on_columns
        assert not isinstance(does, str), "it would have a reason"
        if isinstance(does, Unwraps):
            return dict.fromkeys([does.field.path, *self._moved[node.name].values()])
        if not isinstance(does, ValueFields):
            read = does.where if isinstance(does, Keeps) else does.key
            made = () if isinstance(does, Keeps) else (KEY,)
            return dict.fromkeys([*read.paths, *(path for path in self._needs[node.name] if path not in made)])
        base = [WHOLE] if does.everything and WHOLE in self._needs[node.name] else []
        return dict.fromkeys(
            [path for _, one in does.computed for path in one.paths] + list(self._moved[node.name].values()) + base
        )

    def _steps(self) -> list[ColumnStep]:
        """The operators that stay on columns, all the way from a source of JSON."""
        steps: dict[str, ColumnStep] = {}
        for node in self._nodes.values():
            if not isinstance(node, ProcessorNode) or node.name not in self._head or node.name in self._reasons:
                continue
            (parent,) = node.parents
            above = self._nodes[parent]
            source = above.name if isinstance(above, SourceNode) else steps[parent].source if parent in steps else None
            if source is None:
                self._reasons[node.name] = self._reasons[parent]
            elif (why := self._why_unfit(node, self._nodes[source])) is not None:
                self._reasons[node.name] = why
            else:
                does = node.spec.on_columns
                assert not isinstance(does, str), "it would have a reason"
                moved = tuple(self._moved.get(node.name, {}).items())
                whole = WHOLE in self._needs[node.name]
                steps[node.name] = ColumnStep(node.name, parent, source, does, moved, whole)
        return list(steps.values())

    def _why_unfit(self, node: Node, source: Node) -> Reason | None:
        """Why a source has no columns for a node; None if it has."""
        reads_keys = source.name in node.parents and KEY in self._needs_of(node)
        return _unfit_source(source) or (_unfit_keys(source) if reads_keys else None)

    def _fed_by(self, node: ProcessorNode, steps: Collection[str]) -> bool:
        """Whether all parents of a node give it columns. If not, notes the reason."""
        for parent in node.parents:
            above = self._nodes[parent]
            why = _unfit_source(above) if isinstance(above, SourceNode) else None
            if why is None and not isinstance(above, SourceNode) and parent not in steps:
                made = Reason(parent, "makes whole records")
                why = self._reasons.get(parent, made) if parent in self._head else made
            if why is not None:
                self._reasons[node.name] = why
                return False
        return True

    def _needed_of(self, source: str, on_columns: Collection[str]) -> Paths:
        needed: Paths = {}
        for node in self._nodes.values():
            if node.name in on_columns and source in node.parents:
                needed |= self._needs_of(node)
        return needed

    def _new_keys(self, name: str) -> bool:
        """Whether a node of the head, or one above it, makes new keys."""
        node = self._nodes[name]
        return isinstance(node, ProcessorNode) and (node.key_changing or any(map(self._new_keys, node.parents)))

    def _source_above(self, name: str) -> SourceNode | None:
        node = self._nodes[name]
        while isinstance(node, ProcessorNode) and len(node.parents) == 1:
            node = self._nodes[node.parents[0]]
        return node if isinstance(node, SourceNode) else None


def _unfit_source(source: Node) -> Reason | None:
    assert isinstance(source, SourceNode), "columns come from sources"
    if is_plain_json(source.value_serde):
        return None
    return Reason(source.name, "reads values that are not plain JSON: columns need JsonSerde() without a type")


_KEYS: Final = (StringSerde, Int32Serde, Int64Serde, Float64Serde, BooleanSerde)
"""The serdes whose keys can be columns, because their keys are JSON values."""


def _unfit_keys(source: Node) -> Reason | None:
    assert isinstance(source, SourceNode), "the steps below a source read its keys"
    if type(source.key_serde) in _KEYS:
        return None
    return Reason(source.name, f"has keys of {source.key_serde!r}, which expressions read of records alone")
