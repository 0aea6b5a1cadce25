"""JSON as the cases mean it: compact bytes, fields in their order, exact whole numbers, ``true`` never equal to ``1``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


def text_of(value: Any) -> str:
    """Compact JSON text, fields in the order in which they were put in."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def canonical(value: Any) -> str:
    """A text that two values share exactly if they are the same JSON value, whatever the order of fields."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def same(left: Any, right: Any) -> bool:
    """JSON equality."""
    return canonical(left) == canonical(right)


@dataclass(frozen=True, slots=True)
class CompactJsonSerde:
    """Any JSON value as compact UTF-8 text; whole numbers of any size stay exact (orjson stops at 64 bits)."""

    def serialize(self, topic: str, value: Any, headers: Any = None) -> bytes | None:
        """Bytes of the value; None is Kafka's null."""
        return None if value is None else text_of(value).encode()

    def deserialize(self, topic: str, data: bytes | None, headers: Any = None) -> Any:
        """The value."""
        return None if data is None else json.loads(data)
