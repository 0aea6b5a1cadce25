"""`NodeSpec`: what a node of the graph is, from which everything else about it follows.

A spec knows the kind of the node, what names and the topology hash say of it, what the planner must know, and how its operator
is made. Changes that come while a program is built (a store that a table gets late, old values that something below asks for)
are a new spec in place of the old one; the operator is made of the last one, in each task.

Invariants: specs are frozen, and picklable by cloudpickle; `parameters` hold plain values only and never change for a program
that did not change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from streams.operators.processor import AnyProcessor
from streams.topology.node_kind import NodeKind

if TYPE_CHECKING:
    from typing_extensions import Self


Parameters: TypeAlias = tuple[tuple[str, str | int | bool | None], ...]
"""Names and values that tell an operator from others of its kind."""


class NodeSpec(ABC):
    """What one node of the graph is. Subclasses are frozen dataclasses."""

    __slots__ = ()

    @property
    def kind(self) -> NodeKind:
        """The sort of operator."""
        raise NotImplementedError

    @abstractmethod
    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """A new operator.

        Args:
            stores: The names of the node's stores, in the order that the subclass documents.
        """

    @property
    def parameters(self) -> Parameters:
        """What the operator does besides its functions: part of the topology hash and, mostly, of generated names."""
        return ()

    @property
    def projection(self) -> tuple[str, ...] | None:
        """The fields (dotted paths) of a JSON value that the operator reads as columns; None: it takes whole records."""
        return None

    def by_record(self) -> Self:
        """The same, for an operator that takes whole records in any case."""
        return self

    @property
    def drops(self) -> bool:
        """Whether the operator may drop records although it is stateless; stateful ones all may."""
        return False

    @property
    def repeatable(self) -> bool:
        """Whether the same records always give the same results.

        Where they do not, a key that is made behind the node must not decide which task a record goes to: an attempt that is
        repeated would send it to another one.
        """
        return True

    @property
    def sees_stream_time(self) -> bool:
        """Whether a user's code in the operator may ask for the task's stream time, or be called by it."""
        return False

    def dropped_by(self, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        """The nodes that drop what is missing in the node's results: the node itself, unless it only ends a group of nodes.

        Args:
            name: The name of the node.
            parents: The names of its parents.
        """
        return (name,)


@dataclass(frozen=True, slots=True)
class OperatorSpec(NodeSpec):
    """An operator about which nothing else needs to be known, such as a filter of a stream.

    Attributes:
        kind: The sort of operator.
        supplier: Makes a new operator on each call.
    """

    kind: NodeKind = field()
    supplier: Callable[[], AnyProcessor]

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """What the supplier makes."""
        return self.supplier()


@dataclass(frozen=True, slots=True)
class TableSpec(NodeSpec):
    """An operator whose results are the updates of a table.

    Attributes:
        send_old: Whether something below needs `Change.old`.
    """

    send_old: bool = field(default=False, kw_only=True)

    def with_old_values(self) -> Self:
        """The same, for an operator whose updates hold the old value."""
        return replace(self, send_old=True)

    def without_caching(self) -> Self:
        """The same, for an operator that passes each update on as it comes."""
        return self


@dataclass(frozen=True, slots=True)
class CachingTableSpec(TableSpec):
    """An operator of a table that may hold updates back until the end of the step.

    Attributes:
        caching: Whether it does: then only the last update of a key in a step goes on.
    """

    caching: bool = field(default=True, kw_only=True)

    def without_caching(self) -> Self:
        """The same, for an operator that passes each update on as it comes."""
        return replace(self, caching=False)
