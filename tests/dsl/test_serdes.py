"""Serdes byte for byte (golden bytes: Kafka's Java serialisers), and their errors.

`JAVA` was printed by the serialisers of kafka-clients 4.3.1 (`Serdes.Short()`, `Serdes.ListSerde(ArrayList.class, ...)`, ...).
"""

import math
import uuid
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    BooleanSerde,
    BytesSerde,
    Change,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    JsonSerde,
    ListSerde,
    Materialized,
    Serde,
    SerdeError,
    SessionWindowedSerde,
    StreamsBuilder,
    StringSerde,
    TimeWindowedSerde,
    UuidSerde,
    VoidSerde,
    Window,
    Windowed,
)
from streams.model.record import CombinedKey, Response, Subscription, WaitingKey, WaitingRecord
from streams.serdes.base import serde_identity
from streams.serdes.internal import (
    ChangeSerde,
    CombinedKeySerde,
    ResponseSerde,
    SubscriptionSerde,
    WaitingKeySerde,
    WaitingSerde,
)
from streams.topology.manifest import manifest_json

GOLDEN = [
    (StringSerde(), "Zürich", b"Z\xc3\xbcrich"),
    (StringSerde(), "", b""),
    (BytesSerde(), b"\x00\xff", b"\x00\xff"),
    (Int16Serde(), -2, b"\xff\xfe"),
    (Int32Serde(), 258, b"\x00\x00\x01\x02"),
    (Int64Serde(), -1, b"\xff" * 8),
    (Int64Serde(), 1 << 40, b"\x00\x00\x01\x00\x00\x00\x00\x00"),
    (Float32Serde(), 1.5, b"\x3f\xc0\x00\x00"),
    (Float64Serde(), -2.5, b"\xc0\x04\x00\x00\x00\x00\x00\x00"),
    (UuidSerde(), uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e"), b"0f8fad5b-d9cb-469f-a165-70867728950e"),
    (JsonSerde(), {"b": 1, "a": [None, 2.5, "é"]}, '{"b":1,"a":[null,2.5,"é"]}'.encode()),
    (TimeWindowedSerde(StringSerde(), 10), Windowed("k", Window(20, 30)), b"k" + (20).to_bytes(8, "big")),
    (
        SessionWindowedSerde(Int32Serde()),
        Windowed(7, Window(20, 35)),
        b"\x00\x00\x00\x07" + (35).to_bytes(8, "big") + (20).to_bytes(8, "big"),
    ),
]

AN_ID = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
HEX_ID = str(AN_ID).encode().hex()
JAVA = [
    (Int16Serde(), 0, "0000"),
    (Int16Serde(), -(2**15), "8000"),
    (Int16Serde(), 2**15 - 1, "7fff"),
    (Int32Serde(), -(2**31), "80000000"),
    (Int32Serde(), 2**31 - 1, "7fffffff"),
    (Int64Serde(), -(2**63), "8000000000000000"),
    (Int64Serde(), 2**63 - 1, "7fffffffffffffff"),
    (Float32Serde(), -0.0, "80000000"),
    (Float32Serde(), 3.4028234663852886e38, "7f7fffff"),
    (Float32Serde(), math.inf, "7f800000"),
    (Float64Serde(), 0.1, "3fb999999999999a"),
    (Float64Serde(), 5e-324, "0000000000000001"),
    (Float64Serde(), -math.inf, "fff0000000000000"),
    (StringSerde(), "Zürich \U0001f600", "5ac3bc7269636820f09f9880"),
    (UuidSerde(), AN_ID, HEX_ID),
    (BooleanSerde(), True, "01"),
    (BooleanSerde(), False, "00"),
    (ListSerde(Int32Serde()), [1, None, -3], "0000000001000000010000000300000001fffffffd"),
    (ListSerde(Int32Serde()), [], "000000000000000000"),
    (ListSerde(StringSerde()), ["a", None, "", "ü"], "01000000040000000161ffffffff0000000000000002c3bc"),
    (ListSerde(UuidSerde()), [AN_ID], "000000000000000001" + HEX_ID),
    (ListSerde(BooleanSerde()), [True, False], "010000000200000001010000000100"),
    (ListSerde(Int16Serde()), [1], "0000000000000000010001"),
    (ListSerde(ListSerde(Int64Serde())), [[7]], "0100000001000000110000000000000000010000000000000007"),
]


@pytest.mark.parametrize(("serde", "value", "data"), JAVA)
def test_the_bytes_are_javas(serde, value, data):
    assert serde.serialize("t", value).hex() == data
    assert repr(serde.deserialize("t", bytes.fromhex(data))) == repr(value)


def test_numbers_that_are_none_and_short_floats():
    assert Float32Serde().serialize("t", math.nan).hex() == "7fc00000"
    assert Float64Serde().serialize("t", math.nan).hex() == "7ff8000000000000"
    assert Float32Serde().serialize("t", 0.1).hex() == "3dcccccd"


def test_void_is_null_only():
    assert VoidSerde().serialize("t", None) is None is VoidSerde().deserialize("t", None)


@pytest.mark.parametrize(("serde", "value", "data"), GOLDEN)
def test_golden_bytes(serde, value, data):
    assert isinstance(serde, Serde)
    assert serde.serialize("t", value) == data
    assert serde.deserialize("t", data) == value


@pytest.mark.parametrize("serde", [serde for serde, _, _ in GOLDEN])
def test_none_is_kafkas_null(serde):
    assert serde.serialize("t", None) is None
    assert serde.deserialize("t", None) is None


def test_a_time_window_of_unknown_size_has_no_end():
    assert TimeWindowedSerde(StringSerde()).deserialize("t", b"k" + bytes(8)).window == Window(0, 2**63 - 1)


def test_windowed_keys_are_partitioned_by_the_inner_key():
    for serde in (TimeWindowedSerde(StringSerde(), 10), SessionWindowedSerde(StringSerde())):
        assert serde.serialize_base_key("t", Windowed("k", Window(20, 30))) == b"k"


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (StringSerde(), 5),
        (StringSerde(), "\ud800"),
        (BytesSerde(), "text"),
        (Int32Serde(), 2**31),
        (Int64Serde(), 1.0),
        (Int64Serde(), True),
        (Float32Serde(), 1e300),
        (UuidSerde(), "0f8fad5b-d9cb-469f-a165-70867728950e"),
        (JsonSerde(), {1, 2}),
        (BooleanSerde(), 1),
        (VoidSerde(), "something"),
        (ListSerde(Int32Serde()), "text"),
        (TimeWindowedSerde(StringSerde(), 10), "k"),
        (TimeWindowedSerde(StringSerde(), 10), Windowed(None, Window(0, 10))),
    ],
)
def test_what_cannot_be_written_is_named_with_its_topic(serde, value):
    with pytest.raises(SerdeError, match=f"{type(serde).__name__} cannot write .* to topic 'orders'"):
        serde.serialize("orders", value)


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (StringSerde(), b"\xff"),
        (Int64Serde(), b"\x00"),
        (UuidSerde(), b"no uuid"),
        (JsonSerde(), b"{"),
        (BooleanSerde(), b"\x02"),
        (VoidSerde(), b""),
        (ListSerde(Int32Serde()), b""),
        (ListSerde(Int32Serde()), bytes.fromhex("010000000100000001")),
        (ListSerde(Int32Serde()), bytes.fromhex("000000000000000001")),
        (ListSerde(Int32Serde()), bytes.fromhex("00ffffffff00000001")),
        (ListSerde(StringSerde()), bytes.fromhex("0100000001000000ff61")),
        (ListSerde(StringSerde()), bytes.fromhex("01000000010000000161ff")),
        (TimeWindowedSerde(StringSerde(), 10), b"1234567"),
        (SessionWindowedSerde(StringSerde()), bytes(15)),
    ],
)
def test_what_cannot_be_read_is_named_with_its_topic(serde, data):
    with pytest.raises(SerdeError, match=f"{type(serde).__name__} cannot read {len(data)} bytes of topic 'orders'"):
        serde.deserialize("orders", data)


def test_errors_show_little_of_the_data():
    with pytest.raises(SerdeError) as error:
        JsonSerde().deserialize("orders", b"x" * 10_000)
    assert len(str(error.value)) < 400

    class Rude:
        def __repr__(self):
            raise ValueError

    with pytest.raises(SerdeError, match="<Rude>"):
        StringSerde().serialize("orders", Rude())


def test_serdes_compare_by_settings():
    assert Int64Serde() == Int64Serde() != Int32Serde()
    assert TimeWindowedSerde(StringSerde(), 10) != TimeWindowedSerde(StringSerde(), 20)


def test_identity_is_stable_text():
    @dataclass(frozen=True)
    class Versioned:
        version: int

        def serialize(self, topic, value, headers=None): ...

        def deserialize(self, topic, data, headers=None): ...

    class Plain:
        pass

    assert serde_identity(TimeWindowedSerde(StringSerde(), 10)) == "TimeWindowedSerde(inner=StringSerde(), size_ms=10)"
    assert serde_identity(Versioned(2)).endswith("Versioned(version=2)")
    assert "0x" not in serde_identity(Plain())


class Codec(Enum):
    PLAIN = 1
    OWN = object()


@dataclass(frozen=True)
class Custom:
    """A serde of a user: some of its fields make the format, some are secret, some have an address."""

    codec: Codec = Codec.PLAIN
    inner: Any = field(default_factory=StringSerde)
    parts: tuple[Any, ...] = field(default_factory=lambda: (1, "a", Int64Serde(), (True,)))
    encrypt: Any = lambda data: data
    client: Any = field(default_factory=object)
    tables: Any = field(default_factory=dict)
    api_password: str = "hunter2"
    key: str = field(default="hunter3", repr=False)

    def serialize(self, topic, value, headers=None): ...

    def deserialize(self, topic, data, headers=None): ...


def test_identity_of_a_custom_serde_has_neither_addresses_nor_secrets():
    assert serde_identity(Custom(tables={"password": "hunter4"})) == (
        "Custom(codec=<Codec.PLAIN: 1>, inner=StringSerde(), parts=(1, 'a', Int64Serde(), (True,)), encrypt=<function>, "
        "client=<object>, tables=<dict>, api_password=********)"
    )
    assert serde_identity(Custom()) == serde_identity(
        Custom(encrypt=lambda data: data + b"!", client=object(), key="x")
    )
    assert serde_identity(Custom(codec=Codec.OWN)).startswith("Custom(codec=<Codec.OWN>, ")
    assert serde_identity(Custom(parts=(2,))) != serde_identity(Custom(parts=(3,)))


def test_a_custom_serde_is_the_same_structure_at_each_start():
    def described() -> str:
        builder = StreamsBuilder()
        kept = Materialized(name="kept", value_serde=Custom(encrypt=lambda data: data))
        builder.table("in", materialized=kept).to_stream().to("out")
        return manifest_json(builder.build())

    assert described() == described()
    assert "hunter" not in described()


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=8))
def test_json_round_trip(value):
    if value is not None:
        assert JsonSerde().deserialize("t", JsonSerde().serialize("t", value)) == value


# --- Serdes of what travels and lies inside: changes, foreign-key joins, waiting records.


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


@given(hashes, st.integers(0, 3), st.text(max_size=9), st.none() | st.integers(0, 999), texts)
def test_what_foreign_key_joins_send(digest, instruction, key, partition, value):
    both_ways(SubscriptionSerde(StringSerde()), Subscription(digest, instruction, key, partition))
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
