"""A key is its canonical bytes: the bytes that its serde writes for it, whatever notation its producer uses.

The same key may be written in several ways: a JSON object with other spaces or escapes, a UUID in capitals, a typed key without
its defaults, Avro with the id of another schema. The reader of a source replaces them once, by the bytes that the source's key
serde writes for the key. All other parts find keys by these bytes: tasks, stores, joins, retry topics, rescales and queries. The
bytes as they were in the topic are sent along for dead letters and messages.

A key that cannot be read keeps its bytes, so that all records with these bytes are refused in the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from state.columns import BinaryColumn, RecordColumns, binary_column, replaced, rows_where
from state.headers import decode_headers
from streams.engine.graph.node import may_be_the_records_fault
from streams.model.record import Headers
from streams.serdes.base import Serde
from streams.serdes.columns import normal_keys
from streams.serdes.exactness import always_canonical, reads_alone


def canonical_keys(serde: Serde, columns: RecordColumns) -> BinaryColumn:
    """The keys of records in canonical bytes. If all keys have them already, the same column is returned.

    Raises:
        RegistryError: A schema registry does not answer.
    """
    keys = columns.keys
    if always_canonical(serde):
        return keys
    normal = normal_keys(serde, keys)
    rows = rows_where(keys.is_valid().to_numpy(zero_copy_only=False) if normal is None else ~normal)
    if not len(rows):
        return keys
    at = pa.array(rows)
    found = keys.take(at)
    if columns.headers is None or reads_alone(serde):
        distinct = found.dictionary_encode()
        cells = distinct.dictionary.to_pylist()
        written = _written(serde, columns.topic, cells, None)
        if written == cells:
            return keys
        return replaced(keys, rows, binary_column(written).take(distinct.indices))
    cells = found.to_pylist()
    written = _written(serde, columns.topic, cells, columns.headers.take(at).to_pylist())
    return keys if written == cells else replaced(keys, rows, binary_column(written))


def _written(
    serde: Serde, topic: str, cells: Sequence[bytes], headers: Sequence[bytes | None] | None
) -> list[bytes | None]:
    """The canonical bytes of each key."""
    if headers is None:
        return [_canonical(serde, topic, cell, ()) for cell in cells]
    known: dict[tuple[bytes, bytes | None], bytes | None] = {}
    for pair in zip(cells, headers, strict=True):
        if pair not in known:
            known[pair] = _canonical(serde, topic, pair[0], tuple(decode_headers(pair[1])) if pair[1] else ())
    return [known[pair] for pair in zip(cells, headers, strict=True)]


def _canonical(serde: Serde, topic: str, cell: bytes, headers: Headers) -> bytes | None:
    """The canonical bytes of a key. They are written without headers, as for the keys of stores."""
    try:
        key = serde.deserialize(topic, cell, headers)
        return None if key is None else serde.serialize(topic, key, ())
    except Exception as error:
        if not may_be_the_records_fault(error):
            raise
        # The code that needs the key will meet the error, and has a policy for it.
        return cell


def read_key(serde: Serde, topic: str, cell: bytes | None, headers: Headers) -> Any:
    """Reads a key. Canonical bytes need no headers; a key in its producer's bytes is read with them.

    Raises:
        SerdeError: It cannot be read.
    """
    if not headers:
        return serde.deserialize(topic, cell, ())
    try:
        return serde.deserialize(topic, cell, ())
    except Exception as error:
        if not may_be_the_records_fault(error):
            raise
        return serde.deserialize(topic, cell, headers)
