"""`NodeSpec`: the complete definition of a node of the graph.

A spec has the kind of the node, its parameters in names and in the topology hash, the properties that the planner needs, and the
way to make the operator. Late changes while a program is built (a store added to a table, old values needed by an operator below)
replace the spec; each task makes its operator from the last one.

Invariants: specs are frozen, and picklable by cloudpickle; `parameters` hold plain values only, and never change if the program
does not change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from streams.model.expressions import Col, Expression, ValueFields
from streams.operators.processor import AnyProcessor
from streams.topology.node_kind import NodeKind

if TYPE_CHECKING:
    from typing_extensions import Self


Parameters: TypeAlias = tuple[tuple[str, str | int | bool | None], ...]
"""Names and values that distinguish an operator from others of its kind."""


@dataclass(frozen=True, slots=True)
class Keeps:
    """A filter of columns.

    Attributes:
        where: Rows for which the expression is true are kept.
        negate: Whether these rows are left out instead.
    """

    where: Expression
    negate: bool


@dataclass(frozen=True, slots=True)
class Keys:
    """New keys for columns.

    Attributes:
        key: The expression that computes a key, or the fields that make up the key.
    """

    key: Expression | ValueFields


@dataclass(frozen=True, slots=True)
class Unwraps:
    """New values for columns: one of the fields, such as the event in an envelope.

    Attributes:
        field: The field.
    """

    field: Col


ColumnFunction: TypeAlias = Keeps | Keys | Unwraps | ValueFields
"""What an operator does to columns: it keeps rows, makes new keys, takes a field as the value, or makes new fields."""


ONE_BY_ONE: Final = "it takes records one by one"


class NodeSpec(ABC):
    """The definition of one node of the graph. Subclasses are frozen dataclasses."""

    __slots__ = ()

    @property
    def kind(self) -> NodeKind:
        raise NotImplementedError

    @abstractmethod
    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes a new operator."""

    @property
    def parameters(self) -> Parameters:
        """The operator's parameters apart from its functions: part of the topology hash, and usually of generated names."""
        return ()

    @property
    def projection(self) -> tuple[str, ...] | None:
        """The fields (dotted paths) of a JSON value that the operator reads as columns; None: it takes whole records."""
        return None

    @property
    def whole_records(self) -> str:
        """Why the operator takes whole records, if it does."""
        return "takes whole records"

    @property
    def on_columns(self) -> ColumnFunction | str:
        """What the operator does to columns of fields, if a later node reads such columns; or, as a text, why it cannot."""
        return "takes whole records"

    @property
    def single(self) -> str:
        """Why the operator processes the records of a batch one after the other; empty: it does not."""
        return ""

    @property
    def joint(self) -> bool:
        """Whether nodes of this kind that share stores get one batch (`Operator.lead`)."""
        return False

    @property
    def looks_up(self) -> tuple[str, ...]:
        """The stores of tables that the operator only reads."""
        return ()

    sees_forwarded: ClassVar[bool] = False
    """Whether it reads rows as last forwarded, without the updates that a cache still holds."""

    def uses(self, stores: tuple[str, ...]) -> tuple[str, ...]:
        """The stores that the operator may read and write."""
        return tuple(store for store in stores if store not in self.looks_up)

    def counts_records(self, stores: tuple[str, ...]) -> bool:
        """Whether the same record, if it comes a second time, changes state or results again."""
        return False

    @property
    def late_after_ms(self) -> int | None:
        """How far, in ms, a record may be behind stream time before the operator may drop it as late; None: it drops none."""
        grace_ms = dict(self.parameters).get("grace_ms")
        return grace_ms if isinstance(grace_ms, int) else None

    counts_updates: ClassVar[bool] = False
    """Whether an update of a table, if it comes a second time without a change of the table, changes state or results again."""

    @property
    def shows_updates(self) -> bool:
        """Whether operators that process batches see the operator's table as of each record's place in the step."""
        return False

    def forwards_at_end(self, stores: tuple[str, ...]) -> bool:
        """Whether the operator forwards nothing before the end of the step, because it has a cache."""
        return False

    @property
    def takes_encoded(self) -> bool:
        """Whether values can stay bytes (`EncodedValues`), because the operator seldom looks at one."""
        return False

    @property
    def gives_texts(self) -> bool:
        """Whether results are the texts of JSON objects, made without reading values."""
        return False

    @property
    def passes_texts(self) -> bool:
        """Whether the values of parents are forwarded, and stay unread if they are such texts."""
        return False

    @property
    def takes_several(self) -> bool:
        """Whether an operator with a `projection` takes the fields of a step in several batches, too."""
        return False

    @property
    def remark(self) -> str:
        """A remark for `explain`: when values are read, or when records are processed one by one after all."""
        return ""

    def by_record(self) -> Self:
        return self

    @property
    def one_result(self) -> bool:
        """Whether a record has at most one result."""
        return False

    @property
    def drops(self) -> bool:
        """Whether the operator may drop records although it is stateless; all stateful ones may."""
        return False

    @property
    def reads_timestamp(self) -> bool:
        """Whether results depend on the records' event times."""
        return False

    @property
    def repeatable(self) -> bool:
        """Whether the same records always have the same results.

        If not, a key computed after the node must not decide the task of a record: a repeated attempt would send the record to
        another task.
        """
        return True

    @property
    def takes_null_keys(self) -> bool:
        """Whether the operator is a join that has results for records without a key (KIP-962)."""
        return False

    @property
    def sees_stream_time(self) -> bool:
        """Whether a user's code in the operator may read the task's stream time, or be scheduled by it."""
        return False

    def dropped_by(self, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        """The nodes that drop the records missing in the results: the node itself, unless it only merges a group."""
        return (name,)


@dataclass(frozen=True, slots=True)
class OperatorSpec(NodeSpec):
    """An operator without further properties, such as a filter of a stream.

    Attributes:
        supplier: Makes a new operator on each call.
        one_by_one: Whether the operator processes one record after the other.
        several: Whether a record may have several results.
    """

    kind: NodeKind = field()
    supplier: Callable[[], AnyProcessor]
    one_by_one: bool = False
    several: bool = False

    @property
    def single(self) -> str:
        return "forwards each record on its own" if self.one_by_one else ""

    @property
    def one_result(self) -> bool:
        return not (self.several or self.one_by_one)

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return self.supplier()


@dataclass(frozen=True, slots=True)
class TableSpec(NodeSpec):
    """An operator whose results are the updates of a table.

    Attributes:
        send_old: Whether an operator below needs `Change.old`.
    """

    send_old: bool = field(default=False, kw_only=True)

    def with_old_values(self) -> Self:
        return replace(self, send_old=True)

    def without_caching(self) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class CachingTableSpec(TableSpec):
    """An operator of a table that may cache updates until the end of the step.

    Attributes:
        caching: Whether updates are cached, so that only the last one of a key in each step is forwarded.
    """

    caching: bool = field(default=True, kw_only=True)

    def without_caching(self) -> Self:
        return replace(self, caching=False)
