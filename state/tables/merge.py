"""The overlay of newer rows over older ones, both sorted."""

from __future__ import annotations

from collections.abc import Iterator

from state.tables.table import RowChange

_END: RowChange = (b"", None)


def overlay(newer: Iterator[RowChange], older: Iterator[RowChange], reverse: bool = False) -> Iterator[RowChange]:
    """Merges two iterators in key order (or reverse order); for equal keys the newer row wins.

    Rows with value None (deleted) are passed on, because they may hide rows of a third, still older iterator.
    """
    top, bottom = next(newer, _END), next(older, _END)
    while top is not _END and bottom is not _END:
        if top[0] == bottom[0]:
            yield top
            top, bottom = next(newer, _END), next(older, _END)
        elif (top[0] < bottom[0]) != reverse:
            yield top
            top = next(newer, _END)
        else:
            yield bottom
            bottom = next(older, _END)
    if top is not _END:
        yield top
        yield from newer
    if bottom is not _END:
        yield bottom
        yield from older
