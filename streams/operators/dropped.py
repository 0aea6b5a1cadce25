"""The side stream of records dropped by an operator, each with the reason. Kafka Streams only counts them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from streams.model.record import Change, Record
from streams.operators.columnar import ColumnarBatch
from streams.operators.operator_context import OperatorContext

REASON_HEADER = "__streams.dropped.reason"
NODE_HEADER = "__streams.dropped.node"


def dropped_record(record: Record, reason: str, node: str) -> Record:
    """The original record (for a table's update, with the new value), with two more headers."""
    value = record.value.new if isinstance(record.value, Change) else record.value
    headers = (*record.headers, (REASON_HEADER, reason.encode()), (NODE_HEADER, node.encode()))
    return Record(record.key, value, record.timestamp, headers)


def drop_rows(ctx: OperatorContext, batch: ColumnarBatch, reasons: Mapping[str, npt.NDArray[np.bool_]]) -> None:
    """Drop some records of a batch, in their order."""
    drop_each(ctx, batch, {reason: np.flatnonzero(mask) for reason, mask in reasons.items()})


def drop_each(ctx: OperatorContext, batch: ColumnarBatch, reasons: Mapping[str, npt.NDArray[np.int64]]) -> None:
    """The same for rows that may be dropped several times, such as a record that is late for several windows."""
    dropped = sorted((row, reason) for reason, rows in reasons.items() for row in rows.tolist())
    for reason, same in groupby(dropped, key=itemgetter(1)):
        ctx.drop_batch(batch.take(np.array([row for row, _ in same])), reason)
