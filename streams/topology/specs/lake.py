"""The spec of the node in front of a lake sink."""

from __future__ import annotations

from dataclasses import dataclass

from streams.model.row_layout import RowLayout
from streams.operators.columnar import BatchProcessor
from streams.operators.operator import OperatorBatches
from streams.operators.processor import AnyProcessor
from streams.operators.stateless import ToRows
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import NodeSpec


@dataclass(frozen=True, slots=True)
class ToRowsSpec(NodeSpec):
    """Makes rows of records.

    Attributes:
        layout: The columns.
    """

    kind = NodeKind.KSTREAM_TOROWS
    layout: RowLayout

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return ToRows(self.layout)

    @property
    def batches(self) -> type[BatchProcessor] | str:
        return OperatorBatches
