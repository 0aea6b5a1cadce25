"""The names of records' headers. Apart from `columns`, whose libraries a command that asks Kafka something does not need."""

from __future__ import annotations

# Kafka specifies UTF-8 for names, but no broker checks: clients in C or Go write any bytes. Bytes that are not UTF-8 become lone
# surrogates in Python's text (PEP 383), and the same bytes again when written, so no such name can stop a record.
FOREIGN_BYTES = "surrogateescape"

Header = tuple[str, "bytes | None"]


def name_bytes(name: str) -> bytes:
    """A header's name as Kafka's bytes."""
    return name.encode(errors=FOREIGN_BYTES)
