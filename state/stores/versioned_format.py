"""The first byte of a version's local value: a value, or the mark that the key was deleted at that time."""

from __future__ import annotations

TOMBSTONE = b"\x00"
VALUE = b"\x01"
