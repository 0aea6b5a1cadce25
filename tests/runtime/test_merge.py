"""The merge kernel against its definition."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streams.engine.task.input import merge_order
from tests.conformance.stretches import merge_order_plain

rows = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 2), st.integers(0, 12)),
    max_size=60,
    unique_by=lambda row: row[:3],
)


@given(rows, st.booleans())
def test_kernel_equals_twin(rows, presorted):
    if presorted:
        rows = sorted(rows)
    parts, offsets, seqs, timestamps = ([row[i] for row in rows] for i in range(4))
    order = merge_order(
        np.array(parts, np.int32), np.array(offsets, np.int64), np.array(seqs, np.int32), np.array(timestamps, np.int64)
    )
    assert order.tolist() == merge_order_plain(parts, offsets, seqs, timestamps)


def test_head_timestamp_decides_and_offset_order_holds():
    # partition 0: 5, 1, 9; partition 1: 4, 6. Offset order within a partition beats the timestamp.
    assert merge_order_plain([0, 0, 0, 1, 1], [0, 1, 2, 0, 1], [0] * 5, [5, 1, 9, 4, 6]) == [3, 0, 1, 4, 2]
