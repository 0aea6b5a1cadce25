"""Serdes of what travels and lies inside: changes, foreign-key joins, waiting records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Change, Int64Serde, JsonSerde, SerdeError, StringSerde
from streams.model.foreign_key import CombinedKey, Response, Subscription
from streams.model.waiting import WaitingKey, WaitingRecord
from streams.serdes.change import ChangeSerde
from streams.serdes.foreign_key import CombinedKeySerde, ResponseSerde, SubscriptionSerde
from streams.serdes.waiting import WaitingKeySerde, WaitingSerde

texts = st.one_of(st.none(), st.text(max_size=300))
hashes = st.one_of(st.none(), st.binary(min_size=16, max_size=16))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3).map(tuple)


def both_ways(serde, value):
    data = serde.serialize("t", value)
    assert serde.deserialize("t", data) == value
    return data


def test_changes_as_kafka_streams_writes_them():
    serde = ChangeSerde(StringSerde())
    assert both_ways(serde, Change("new", None)) == b"new\x01"
    assert both_ways(serde, Change(None, "old")) == b"old\x00"
    assert both_ways(serde, Change("new", "old")) == b"\x06newold\x02"
    assert both_ways(serde, Change("n" * 100, ""))[:2] == b"\xc8\x01"
    for wrong in (Change(None, None), "no change"):
        with pytest.raises(SerdeError):
            serde.serialize("t", wrong)
    with pytest.raises(SerdeError):
        serde.deserialize("t", b"\x07")


@given(texts, texts)
def test_changes(new, old):
    if new is not None or old is not None:
        both_ways(ChangeSerde(JsonSerde()), Change(new, old))


@given(hashes, st.integers(0, 3), st.text(max_size=9), texts)
def test_what_foreign_key_joins_send(digest, instruction, key, value):
    both_ways(SubscriptionSerde(StringSerde()), Subscription(digest, instruction, key))
    both_ways(ResponseSerde(JsonSerde()), Response(digest, value))


@given(st.integers(-9, 9), st.text(max_size=9))
def test_subscriptions_of_a_key_lie_together(foreign, primary):
    serde = CombinedKeySerde(Int64Serde(), StringSerde())
    data = both_ways(serde, CombinedKey(foreign, primary))
    assert data.startswith(serde.prefix("t", foreign))
    assert not data.startswith(serde.prefix("t", foreign + 1))


@given(st.integers(0, 2**62), st.integers(0, 1), st.binary(max_size=9), st.integers(0, 2**40), texts, headers)
def test_waiting_records(time, side, key, number, value, own):
    both_ways(WaitingKeySerde(), WaitingKey(time, side, key, number))
    if value is not None:
        serde = WaitingSerde(StringSerde(), JsonSerde())
        data = (serde.left if side else serde.right).serialize("t", value)
        both_ways(serde, WaitingRecord(side, value, own, data))


def test_waiting_records_are_ordered_by_time_side_key_and_arrival():
    places = [
        WaitingKey(1, 0, b"b", 9),
        WaitingKey(1, 1, b"a", 3),
        WaitingKey(1, 1, b"a", 4),
        WaitingKey(256, 0, b"", 0),
    ]
    written = [WaitingKeySerde().serialize("t", place) for place in places]
    assert written == sorted(written)


@pytest.mark.parametrize("serde", [SubscriptionSerde(StringSerde()), ResponseSerde(StringSerde()), WaitingKeySerde()])
def test_what_is_cut_off(serde):
    with pytest.raises(SerdeError):
        serde.deserialize("t", b"\x00")
    with pytest.raises(SerdeError):
        serde.serialize("t", "something else")
