"""Two GiB of one kind in a step: Arrow gives such columns in pieces, which is shown here with small ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from state import columns
from state.columns import binary_column
from state.errors import StepTooLargeError
from state.kafka.partitioner import choose_partitions
from state.kafka.transport import SendColumns
from streams.config import StreamsConfig
from streams.engine.graph.outputs import Collector
from streams.engine.reader import task_inputs


class Arrow:
    """pyarrow, for which two cells are too many for one piece."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pa, name)

    def array(self, values: Any, kind: Any = None) -> Any:
        """The column, in pieces if it is of bytes."""
        if kind != pa.binary() or len(values) < 2:
            return pa.array(values, kind)
        return pa.chunked_array([pa.array(values[:1], kind), pa.array(values[1:], kind)])


@pytest.fixture(autouse=True)
def two_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (columns, task_inputs):
        monkeypatch.setattr(module, "pa", Arrow())


def test_results_are_sent_all_the_same() -> None:
    collector = Collector()
    for n, key in enumerate((b"a", b"b", None)):
        collector.add("out", key, b"v%d" % n, n, (("h", b"x"),), partition_key=key)
    (batch,) = collector.batches()
    assert (batch.keys.to_pylist(), batch.values.to_pylist()) == ([b"a", b"b", None], [b"v0", b"v1", b"v2"])
    whole = pa.array([b"a", b"b", None], pa.binary())
    chosen = choose_partitions(batch.keys, 7, batch.partition_keys)
    assert chosen.tolist() == choose_partitions(whole, 7, whole).tolist()
    sent = SendColumns.of_columns("out", chosen, batch.keys, batch.values, batch.timestamps, batch.headers)
    assert (sent.keys.equals(batch.keys), len(sent)) == (True, 3)


def test_a_column_of_one_piece_stays_as_it_is() -> None:
    assert binary_column([b"a"]).type == pa.binary()


def test_a_changelog_that_is_not_cut_into_parts_stays_below() -> None:
    with pytest.raises(ValidationError, match="spill_bytes"):
        StreamsConfig(application_id="app", spill_bytes=2**31)


def test_what_is_handed_on_to_the_tasks_is_refused() -> None:
    rows = task_inputs.RowColumns([1, 2], [0, 0], [5, 6], [b"a", b"b"], [b"1", b"2"], [(), ()])
    with pytest.raises(StepTooLargeError, match="2 records that were made before the shuffle"):
        rows.to_batch()
    assert np.array_equal(task_inputs.RowColumns([1], [0], [5], [b"a"], [b"1"], [()]).to_batch().column("offset"), [1])
