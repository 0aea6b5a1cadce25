"""The events of Nexmark's generator: of each 50, one person, three auctions and 46 bids, in one topic, nested and without keys.

Proportions, hot keys, sizes and texts are those of `nexmark-flink`'s generator at its default of 10,000 events/s of event time; the
random numbers are NumPy's. One difference: a bidder is one of the persons. Upstream adds the first person's number twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.generators.records import START_MS, Batch

BLOCK = 100_000
"""Events that are made at once; a multiple of 50."""
EVENTS_PER_SECOND = 10_000
_OF = 50
_PERSONS, _AUCTIONS = 1, 3
_FIRST_ID = 1000
_HOT = 100
"""Hot auctions, sellers and bidders change after so many."""
_IN_FLIGHT = 100
_ACTIVE = 1000
_LEAD = 10
_SEED = 20_260

_FIRST = np.array(
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"], object
)
_LAST = np.array(["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"], object)
_STATES = np.array(["AZ", "CA", "ID", "OR", "WA", "WY"], object)
_CITIES = np.array(
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"],
    object,
)
_CHANNELS = np.array(["Google", "Facebook", "Baidu", "Apple"], object)

Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[Any]


def block(first: int, count: int) -> dict[str, pa.Table]:
    """The persons, auctions and bids among `count` events from number `first` on, each with its number in the column `n`."""
    random = np.random.default_rng((_SEED, first))
    numbers = np.arange(first, first + count, dtype=np.int64)
    rest = numbers % _OF
    is_person, is_bid = rest < _PERSONS, rest >= _PERSONS + _AUCTIONS
    return {
        "person": _persons(random, numbers[is_person]),
        "auction": _auctions(random, numbers[~is_person & ~is_bid]),
        "bid": _bids(random, numbers[is_bid]),
    }


def time_of(numbers: Ints) -> Ints:
    """The time of events, ms."""
    return START_MS + numbers * 1000 // EVENTS_PER_SECOND


def _last_person(numbers: Ints) -> Ints:
    return numbers // _OF


def _last_auction(numbers: Ints) -> Ints:
    rest = numbers % _OF
    before = rest < _PERSONS
    return (numbers // _OF - before) * _AUCTIONS + np.where(
        before, _AUCTIONS - 1, np.minimum(rest - _PERSONS, _AUCTIONS - 1)
    )


def _some_person(random: np.random.Generator, numbers: Ints, hot_ratio: int, hot_offset: int) -> Ints:
    last = _last_person(numbers)
    active = np.minimum(last + 1, _ACTIVE)
    any_of = last + 1 - active + (random.random(len(numbers)) * (active + _LEAD)).astype(np.int64)
    hot = random.integers(0, hot_ratio, len(numbers)) > 0
    return _FIRST_ID + np.where(hot, last // _HOT * _HOT + hot_offset, any_of)


def _persons(random: np.random.Generator, numbers: Ints) -> pa.Table:
    count = len(numbers)
    names = _FIRST[random.integers(0, len(_FIRST), count)] + " " + _LAST[random.integers(0, len(_LAST), count)]
    digits = random.integers(0, 10_000, (count, 4))
    return _table(
        numbers,
        id=_FIRST_ID + _last_person(numbers),
        name=names,
        emailAddress=_texts(random, count, 7) + "@" + _texts(random, count, 5) + ".com",
        creditCard=[" ".join(f"{part:04d}" for part in row) for row in digits.tolist()],
        city=_CITIES[random.integers(0, len(_CITIES), count)],
        state=_STATES[random.integers(0, len(_STATES), count)],
        extra=_texts(random, count, 85),
    )


def _auctions(random: np.random.Generator, numbers: Ints) -> pa.Table:
    count = len(numbers)
    initial, more = _prices(random, count), _prices(random, count)
    ahead_ms = _IN_FLIGHT * _OF // _AUCTIONS * 1000 // EVENTS_PER_SECOND
    expires = time_of(numbers) + 1 + random.integers(0, max(ahead_ms * 2, 1), count)
    return _table(
        numbers,
        id=_FIRST_ID + _last_auction(numbers),
        itemName=_texts(random, count, 20),
        description=_texts(random, count, 100),
        initialBid=initial,
        reserve=initial + more,
        expires=_times(expires),
        seller=_some_person(random, numbers, 4, 0),
        category=10 + random.integers(0, 5, count),
        extra=_texts(random, count, 290),
    )


def _bids(random: np.random.Generator, numbers: Ints) -> pa.Table:
    count, last = len(numbers), _last_auction(numbers)
    least = np.maximum(last - _IN_FLIGHT, 0)
    any_of = least + (random.random(count) * (last - least + 1 + _LEAD)).astype(np.int64)
    hot = random.integers(0, 2, count) > 0
    hot_channel, number = random.integers(0, 2, count) > 0, random.integers(0, 10_000, count)
    channel = np.where(hot_channel, _CHANNELS[number % 4], "channel-" + number.astype(str).astype(object))
    path = [_texts(random, count, 5) for _ in range(3)]
    url = "https://www.nexmark.com/" + path[0] + "/" + path[1] + "/" + path[2] + "/item.htm?query=1"
    given = "&channel_id=" + number.astype(str).astype(object)
    return _table(
        numbers,
        auction=_FIRST_ID + np.where(hot, last // _HOT * _HOT, any_of),
        bidder=_some_person(random, numbers, 4, 1),
        price=_prices(random, count),
        channel=channel,
        url=np.where(hot_channel, url, url + given),
        extra=_texts(random, count, 55),
    )


def _prices(random: np.random.Generator, count: int) -> Ints:
    return np.round(10.0 ** (random.random(count) * 6) * 100).astype(np.int64)


def _texts(random: np.random.Generator, count: int, length: int) -> Texts:
    return _pool(length)[random.integers(0, _POOL, count)]


_POOL = 20_000


@cache
def _pool(length: int) -> Texts:
    """The random texts of a length, of which each text is one."""
    random = np.random.default_rng((_SEED, length))
    letters = random.integers(ord("a"), ord("z") + 1, (_POOL, length), dtype=np.uint8)
    return letters.view(f"S{length}").ravel().astype(str).astype(object)


def _times(times: Ints) -> Texts:
    return np.char.replace(times.astype("datetime64[ms]").astype(str), "T", " ").astype(object)


def _table(numbers: Ints, **columns: Any) -> pa.Table:
    return pa.table({"n": numbers, **columns, "dateTime": _times(time_of(numbers))})


_EVENT_TYPES = {"person": 0, "auction": 1, "bid": 2}


def batches(count: int, partitions: int) -> Iterator[Batch]:
    """The first events as records of the topic `events`, dealt to its partitions in turn, in blocks."""
    with duckdb.connect() as database:
        for first in range(0, count, BLOCK):
            made = block(first, min(BLOCK, count - first))
            parts = [_json(database, kind, table) for kind, table in made.items()]
            rows = pa.concat_tables(parts).sort_by("n")
            numbers = rows["n"].to_numpy()
            values = rows["value"].combine_chunks().cast(pa.binary())
            yield Batch("events", None, values, time_of(numbers), (numbers % partitions).astype(np.int32))


def _json(database: duckdb.DuckDBPyConnection, kind: str, table: pa.Table) -> pa.Table:
    columns = ", ".join(f'"{name}" := "{name}"' for name in table.column_names if name != "n")
    parts = ", ".join(
        f"{one} := {f'struct_pack({columns})' if one == kind else 'NULL'}" for one in ("person", "auction", "bid")
    )
    database.register("made", table)
    text = f"SELECT n, to_json(struct_pack(event_type := {_EVENT_TYPES[kind]}, {parts}))::VARCHAR AS value FROM made"
    return database.sql(text).to_arrow_table()
