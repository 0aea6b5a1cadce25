"""New keys on columns: the results of an expression as keys' bytes, each distinct key written once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.operators.aggregate.columns.column_rows import ABSENT, FLOAT, INT, TEXT, FieldColumn, cell
from streams.operators.expressions.evaluate import Bools
from streams.serdes.base import Serde

_KINDS = (INT, FLOAT, TEXT)


def written_keys(
    keys: FieldColumn, rows: Bools, serde: Serde, topic: str, failed: dict[int, Exception]
) -> pa.DictionaryArray:
    """The keys as bytes."""
    codes = np.full(len(rows), -1, np.int32)
    written: list[bytes] = []
    for kind in _KINDS:
        at = np.flatnonzero(rows & (keys.kinds == kind))
        if not len(at):
            continue
        firsts, of_rows = _distinct(keys, kind, at)
        new = np.full(len(firsts), -1, np.int32)
        for number, row in enumerate(at[firsts].tolist()):
            try:
                key = serde.serialize(topic, cell(keys, row), ())
            except Exception as error:
                failed.update(dict.fromkeys(at[of_rows == number].tolist(), error))
                continue
            if key is not None:
                new[number] = len(written)
                written.append(key)
        codes[at] = new[of_rows]
    indices = pa.array(codes, mask=codes < 0)
    # Keys of several kinds may have the same bytes.
    return pa.DictionaryArray.from_arrays(indices, pa.array(written, pa.binary())).cast(pa.binary()).dictionary_encode()


def _distinct(
    keys: FieldColumn, kind: int, at: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For the distinct cells, the first position of each; and the number of each row's cell."""
    assert kind != ABSENT, "a null key is not written"
    if kind == TEXT:
        assert keys.texts is not None, "there are texts"
        encoded = keys.texts.take(pa.array(at)).dictionary_encode()
        numbers = encoded.indices.to_numpy().astype(np.int64)
        firsts = np.full(len(encoded.dictionary), len(at), np.int64)
        np.minimum.at(firsts, numbers, np.arange(len(at)))
        return firsts, numbers
    # By their bits: zeros of both signs are different texts.
    bits = keys.ints[at] if kind == INT else keys.floats[at].view(np.int64)
    _, firsts, numbers = np.unique(bits, return_index=True, return_inverse=True)
    return firsts.astype(np.int64), numbers.astype(np.int64)
