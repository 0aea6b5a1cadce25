"""The functions that put keys into partitions, against the clients that use them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from state.kafka import partitioner
from state.kafka.key_hash import fnv1a, partition_for_key
from state.kafka.partitioner import functions_of, partition_for_keys
from state.kafka.placement import FUNCTIONS, Placement

KEYS = [b"k", b"key", b'"quoted"', b"\x00\x01\x02", b"a longer key, of more than sixteen bytes", "Zürich".encode()]
KEYS += [f"user-{n}".encode() for n in range(300)]
LIBRDKAFKA = {
    Placement.MURMUR2: "murmur2_random",
    Placement.CRC32: None,  # its default
    Placement.FNV1A: "fnv1a_random",
}


def chosen(partitioner: str | None, keys: Sequence[bytes]) -> tuple[dict[bytes, int], int]:
    """Where librdkafka itself puts keys, on its own imitation of a broker; and the number of partitions there."""
    settings = {} if partitioner is None else {"partitioner": partitioner}
    producer = Producer({"test.mock.num.brokers": 1, **settings})
    found: dict[bytes, int] = {}
    for key in keys:
        producer.produce(
            "t", key=key, on_delivery=lambda _, message: found.__setitem__(message.key(), message.partition())
        )
    producer.flush(30)
    return found, len(producer.list_topics("t").topics["t"].partitions)


@pytest.mark.parametrize("placement", FUNCTIONS)
def test_keys_are_where_the_client_puts_them(placement: Placement) -> None:
    found, partitions = chosen(LIBRDKAFKA[placement], KEYS)
    assert partitions > 1
    assert found == {key: partition_for_key(key, partitions, placement) for key in KEYS}


def test_the_known_values_of_each_function() -> None:
    # Of Go's hash/fnv. Sarama takes the remainder of the signed number, and then its amount: 0xE40C292C is negative there.
    assert (fnv1a(b""), fnv1a(b"a"), fnv1a(b"foobar")) == (0x811C9DC5, 0xE40C292C, 0xBF9CF968)
    assert partition_for_key(b"a", 10, Placement.FNV1A) == (2**32 - 0xE40C292C) % 10
    assert partition_for_key(b"123456789", 2**31, Placement.CRC32) == 0xCBF43926 % 2**31


@pytest.mark.parametrize("placement", Placement)
@given(st.lists(st.binary(max_size=40) | st.none(), max_size=30), st.integers(1, 1000))
def test_kernels_agree_with_plain_python(placement: Placement, keys: list[bytes | None], partitions: int) -> None:
    expected = [partition_for_key(key, partitions, placement) for key in keys]
    for kind in (pa.binary(), pa.large_binary()):
        column = pa.array([b"front", *keys], kind)[1:]
        assert partition_for_keys(column, partitions, placement).tolist() == expected


@pytest.mark.parametrize("few", [0, 1_000])
def test_the_function_is_told_by_where_keys_are(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By plain Python for few keys, by kernels for many."""
    monkeypatch.setattr(partitioner, "_FEW", few)
    for placement in FUNCTIONS:
        own = [key for key in KEYS if partition_for_key(key, 8, placement) == 3]
        # Null and empty keys are anywhere: librdkafka's default partitioner takes an empty key for none.
        assert functions_of(pa.array([None, b"", *own], pa.binary()), 3, 8) == (placement,)
        assert functions_of(pa.array(own, pa.binary()), 4, 8) == ()
    assert functions_of(pa.array([None, b""], pa.binary()), 0, 8) == FUNCTIONS
    assert functions_of(pa.nulls(2), 0, 8) == FUNCTIONS


def test_the_partition_alone_says_nothing_of_keys() -> None:
    assert partition_for_key(b"k", 8, Placement.PARTITION) == -1
    assert partition_for_keys(pa.array([b"k"]), 8, Placement.PARTITION).tolist() == [-1]
