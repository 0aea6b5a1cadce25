"""Rows of binary columns in the order of their bytes: sorting, searching and merging, by compiled kernels.

Kernels get binary columns without nulls as `BinaryCells.addresses`; an order is an int64 array of row numbers. Equal keys stay in
the order of their rows. `memcmp` is the address of C's function.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from state.columns import MEMCMP, BinaryCells, Int64s, byte_at, compare
from state.numba_kernels import allocating_kernel, as_pointer, carray

# The bytes of a key that one round of sorting looks at. The eighth byte of the sorted number says how many there are.
_CHUNK = 7
# Up to this many rows, comparing whole keys is faster than another round.
_FEW = 16
# From this many rows on, sorting by digits is faster than comparing numbers.
_MANY = 512


def sorted_rows(column: pa.BinaryArray) -> Int64s:
    """The order of the rows by the bytes of their cells, which must not be null. Rows of equal cells stay in their order."""
    if len(column) < 2:
        return np.arange(len(column))
    cells = BinaryCells(column)
    order: Int64s = sort_rows(cells.addresses, len(column), MEMCMP)
    return order


def is_identity(order: Int64s) -> bool:
    """Whether an order leaves every row in its place."""
    return len(order) < 2 or bool((order == np.arange(len(order))).all())


def inverse(order: Int64s) -> Int64s:
    """For each row, its place in an order."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


def last_of_each(column: pa.BinaryArray) -> Int64s:
    """The last row of each distinct cell, in the order of the cells."""
    cells = BinaryCells(column)
    order = sort_rows(cells.addresses, len(column), MEMCMP)
    rows: Int64s = distinct(cells.addresses, order, MEMCMP)[0]
    return rows


def numbered(column: pa.BinaryArray, order: Int64s) -> tuple[Int64s, Int64s]:
    """For each row, the number of its cell among the distinct ones in their order, and how many equal cells come before it."""
    cells = BinaryCells(column)
    numbers, repeats = number_rows(cells.addresses, order, MEMCMP)
    return numbers, repeats


@allocating_kernel
def sort_rows(keys: Any, count: int, memcmp: int) -> Any:
    """The order of the rows by key: int64[count].

    It sorts in rounds of a radix sort. Each round sorts groups of rows that agree so far by their next 7 bytes.
    """
    order = np.arange(count)
    if in_order(keys, count, memcmp):
        return order
    groups = np.zeros((count // _FEW + 1, 3), np.int64)
    numbers = np.empty(count, np.uint64)
    groups[0, 1] = count
    waiting = 1
    while waiting > 0:
        waiting -= 1
        first, last, depth = groups[waiting, 0], groups[waiting, 1], groups[waiting, 2]
        if last - first <= _FEW:
            insertion_sort(keys, order, first, last, memcmp)
            continue
        sort_by_chunk(keys, order, numbers, first, last, depth)
        begin = first
        for place in range(first + 1, last + 1):
            if place < last and numbers[place] == numbers[begin]:
                continue
            if (numbers[begin] & np.uint64(0xFF)) > _CHUNK:
                if place - begin <= _FEW:
                    insertion_sort(keys, order, begin, place, memcmp)
                else:
                    groups[waiting, 0], groups[waiting, 1], groups[waiting, 2] = begin, place, depth + _CHUNK
                    waiting += 1
            begin = place
    return order


@allocating_kernel
def sort_by_chunk(keys: Any, order: Any, numbers: Any, first: int, last: int, depth: int) -> None:
    """Sorts the rows order[first:last] by the bytes of their keys from `depth` on. Their numbers go into numbers[first:last]."""
    for place in range(first, last):
        numbers[place] = chunk(keys, order[place], depth)
    if last - first >= _MANY:
        radix_sort(numbers[first:last], order[first:last])
    else:
        moved = np.argsort(numbers[first:last], kind="mergesort")
        order[first:last] = order[first:last][moved]
        numbers[first:last] = numbers[first:last][moved]


@allocating_kernel
def radix_sort(numbers: Any, order: Any) -> None:
    """Sorts numbers, and the row numbers with them, digit by digit from the lowest."""
    count = len(numbers)
    counts = np.zeros((8, 256), np.int64)
    for place in range(count):
        for digit in range(8):
            counts[digit, numbers[place] >> np.uint64(8 * digit) & np.uint64(0xFF)] += 1
    other_numbers, other_order = np.empty(count, np.uint64), np.empty(count, np.int64)
    for digit in range(8):
        shift = np.uint64(8 * digit)
        if counts[digit, numbers[0] >> shift & np.uint64(0xFF)] == count:
            continue
        ends = np.cumsum(counts[digit]) - counts[digit]
        for place in range(count):
            bucket = numbers[place] >> shift & np.uint64(0xFF)
            other_numbers[ends[bucket]] = numbers[place]
            other_order[ends[bucket]] = order[place]
            ends[bucket] += 1
        numbers[:], order[:] = other_numbers, other_order


@allocating_kernel
def chunk(keys: Any, row: int, depth: int) -> Any:
    """The next 7 bytes of a key as a number that sorts like them. Its lowest byte says how many bytes are left (8 = over 7)."""
    ends = carray(as_pointer(keys[0] + 8 * row), 2, np.int64)
    start = keys[1] + ends[0] + depth
    rest = min(ends[1] - ends[0] - depth, _CHUNK + 1)
    number = np.uint64(0)
    for place in range(_CHUNK):
        byte = byte_at(start + place) if place < rest else 0
        number = number << np.uint64(8) | np.uint64(byte)
    return number << np.uint64(8) | np.uint64(rest)


@allocating_kernel
def insertion_sort(keys: Any, order: Any, first: int, last: int, memcmp: int) -> None:
    """Sorts a few rows by comparing whole keys."""
    for place in range(first + 1, last):
        row, to = order[place], place
        while to > first and compare_rows(keys, order[to - 1], keys, row, memcmp) > 0:
            order[to] = order[to - 1]
            to -= 1
        order[to] = row


@allocating_kernel
def in_order(keys: Any, count: int, memcmp: int) -> bool:
    row = 1
    while row < count and compare_rows(keys, row - 1, keys, row, memcmp) <= 0:
        row += 1
    return row >= count


@allocating_kernel
def compare_rows(left: Any, row: int, right: Any, other: int, memcmp: int) -> int:
    """Returns a number below, equal to or above 0 if the left row's key is below, equal to or above the right row's."""
    ends, others = (
        carray(as_pointer(left[0] + 8 * row), 2, np.int64),
        carray(as_pointer(right[0] + 8 * other), 2, np.int64),
    )
    return compare(memcmp, left[1] + ends[0], ends[1] - ends[0], right[1] + others[0], others[1] - others[0])


@allocating_kernel
def distinct(keys: Any, order: Any, memcmp: int) -> Any:
    """The last and the first row of each key, in key order: int64[2, number of keys]."""
    rows = np.empty((2, len(order)), np.int64)
    count = 0
    for place in range(len(order)):
        if place > 0 and compare_rows(keys, order[place - 1], keys, order[place], memcmp) == 0:
            rows[0, count - 1] = order[place]
        else:
            rows[0, count] = rows[1, count] = order[place]
            count += 1
    return rows[:, :count]


@allocating_kernel
def number_rows(keys: Any, order: Any, memcmp: int) -> Any:
    """For each row, the number of its key in key order, and how many rows before it have the same key: int64[2, n]."""
    numbers = np.zeros((2, len(order)), np.int64)
    for place in range(1, len(order)):
        row, before = order[place], order[place - 1]
        numbers[0, row] = numbers[0, before]
        if compare_rows(keys, before, keys, row, memcmp) == 0:
            numbers[1, row] = numbers[1, before] + 1
        else:
            numbers[0, row] += 1
    return numbers


@allocating_kernel
def merge_orders(keys: Any, one: Any, other: Any, memcmp: int) -> Any:
    """Merges two orders of rows of one column. For equal keys, the rows of `one` come first."""
    merged = np.empty(len(one) + len(other), np.int64)
    i = j = 0
    for place in range(len(merged)):
        if j == len(other) or (i < len(one) and compare_rows(keys, one[i], keys, other[j], memcmp) <= 0):
            merged[place] = one[i]
            i += 1
        else:
            merged[place] = other[j]
            j += 1
    return merged


@allocating_kernel
def lower_bounds(keys: Any, order: Any, asked: Any, count: int, memcmp: int) -> Any:
    """For each key in `asked`, the number of rows below it: int64[count]. It is fast if these keys are sorted."""
    found = np.empty(count, np.int64)
    low = 0
    for row in range(count):
        if row > 0 and compare_rows(asked, row - 1, asked, row, memcmp) > 0:
            low = 0
        # Steps from the last place grow longer and longer; then the range is halved.
        high, step = low, 1
        while high < len(order) and compare_rows(keys, order[high], asked, row, memcmp) < 0:
            low = high + 1
            high += step
            step *= 2
        high = min(high, len(order))
        while low < high:
            middle = (low + high) // 2
            if compare_rows(keys, order[middle], asked, row, memcmp) < 0:
                low = middle + 1
            else:
                high = middle
        found[row] = low
    return found


@allocating_kernel
def find_rows(keys: Any, order: Any, asked: Any, count: int, memcmp: int) -> Any:
    """For each key in `asked`, its row, or -1 if there is none: int64[count]."""
    found = lower_bounds(keys, order, asked, count, memcmp)
    for row in range(count):
        place = found[row]
        if place < len(order) and compare_rows(keys, order[place], asked, row, memcmp) == 0:
            found[row] = order[place]
        else:
            found[row] = -1
    return found


@allocating_kernel
def expand(begins: Any, ends: Any) -> Any:
    """The ranges [begin, end) one after the other: the number of the range and the place, int64[2, n]."""
    total = 0
    for index in range(len(begins)):
        total += max(ends[index] - begins[index], 0)
    places = np.empty((2, total), np.int64)
    row = 0
    for index in range(len(begins)):
        for place in range(begins[index], ends[index]):
            places[0, row], places[1, row] = index, place
            row += 1
    return places


@allocating_kernel
def overlay_rows(newer: Any, newer_ranges: Any, older: Any, older_ranges: Any, memcmp: int) -> Any:
    """Merges rows ordered by range and key. If both have a key of a range, the newer row hides the older one."""
    merged = np.empty(len(newer_ranges) + len(older_ranges), np.int64)
    i = j = count = 0
    while i < len(newer_ranges) or j < len(older_ranges):
        if j == len(older_ranges):
            order = -1
        elif i == len(newer_ranges):
            order = 1
        else:
            order = newer_ranges[i] - older_ranges[j]
            if order == 0:
                order = compare_rows(newer, i, older, j, memcmp)
        merged[count] = i if order <= 0 else len(newer_ranges) + j
        count += 1
        if order <= 0:
            i += 1
        if order >= 0:
            j += 1
    return merged[:count]
