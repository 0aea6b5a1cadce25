"""Stored values that an older program wrote: read, brought up to date, and refused where that cannot be."""

from __future__ import annotations

import pytest

from streams import (
    Int64Serde,
    JsonSerde,
    Materialized,
    SerdeError,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    TopologyError,
    VersionedSerde,
)
from streams.serdes.base import serde_identity
from streams.testing import TopologyTestDriver

TAG = b"\xff\xfeSTREAMS"


def with_currency(order):
    return {**order, "currency": "EUR"}


def in_cents(order):
    return {**{name: order[name] for name in order if name != "price"}, "cents": round(order["price"] * 100)}


V1 = VersionedSerde(JsonSerde(), 1, {1: with_currency})
V2 = VersionedSerde(JsonSerde(), 2, {1: with_currency, 2: in_cents})


def test_the_bytes():
    assert V1.serialize("t", {"price": 1}) == TAG + b'\x01{"price":1}'
    assert VersionedSerde(JsonSerde(), 0).serialize("t", {"price": 1}) == b'{"price":1}'
    assert V1.serialize("t", None) is None is V1.deserialize("t", None)


def test_old_values_are_brought_up_to_date():
    untagged = JsonSerde().serialize("t", {"price": 1.5})
    assert V1.deserialize("t", untagged) == {"price": 1.5, "currency": "EUR"}
    assert V2.deserialize("t", untagged) == {"cents": 150, "currency": "EUR"}
    assert V2.deserialize("t", V1.serialize("t", {"price": 2, "currency": "CHF"})) == {"cents": 200, "currency": "CHF"}
    new = {"cents": 5, "currency": "CHF"}
    assert V2.deserialize("t", V2.serialize("t", new)) == new
    assert V2.deserialize("t", b"null") is None


def test_an_older_program_refuses_values_of_a_newer_one():
    data = V2.serialize("t", {"cents": 5})
    with pytest.raises(SerdeError, match=r"a newer program wrote it: version 2, this one knows up to 1"):
        V1.deserialize("t", data)


def test_versions_that_are_no_longer_read():
    recent = VersionedSerde(JsonSerde(), 2, {2: in_cents})
    assert recent.deserialize("t", V1.serialize("t", {"price": 1})) == {"cents": 100}
    with pytest.raises(SerdeError, match="it is of version 0, and no upcaster makes 1 of that"):
        recent.deserialize("t", b'{"price":1}')


def test_a_failing_upcaster_is_named():
    with pytest.raises(SerdeError, match=r"the upcaster to version 2 failed with KeyError: 'price'"):
        V2.deserialize("orders", b"{}")


@pytest.mark.parametrize(
    ("version", "to"), [(2, [1]), (2, [2, 3]), (3, [1, 3]), (1, [0, 1]), (256, []), (-1, []), (1, [2])]
)
def test_gaps_among_upcasters_are_refused(version, to):
    with pytest.raises(TopologyError, match="VersionedSerde"):
        VersionedSerde(JsonSerde(), version, dict.fromkeys(to, in_cents))


def test_bytes_that_look_tagged_are_kept_apart():
    tricky = (TAG + b"\x07x").decode("latin-1")

    class Latin:
        def serialize(self, topic, value, headers=None):
            return None if value is None else value.encode("latin-1")

        def deserialize(self, topic, data, headers=None):
            return data.decode("latin-1")

    for version in (0, 1):
        serde = VersionedSerde(Latin(), version)
        assert serde.deserialize("t", serde.serialize("t", tricky)) == tricky


def test_a_new_version_is_the_same_format_to_the_topology_hash():
    assert serde_identity(V2) == serde_identity(V1) == serde_identity(JsonSerde())
    assert serde_identity(VersionedSerde(Int64Serde(), 0)) != serde_identity(V1)


def totals(serde, add):
    """Totals per key, as a table and in windows."""
    builder = StreamsBuilder()
    orders = builder.stream("orders")
    for name, grouped in (
        ("totals", orders.group_by_key()),
        ("by-window", orders.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(1000))),
    ):
        grouped.aggregate(
            dict, lambda key, order, total: add(order, total), materialized=Materialized(name=name, value_serde=serde)
        ).to_stream(name).to(f"{name}-out")
    return builder.build()


def add_v0(order, total):
    return {"price": total.get("price", 0) + order["price"]}


def add_v2(order, total):
    return {"cents": total.get("cents", 0) + round(order["price"] * 100), "currency": total.get("currency", "EUR")}


@pytest.mark.parametrize("rocksdb", [False, True])
@pytest.mark.parametrize("wipe", [False, True])
def test_a_new_program_goes_on_with_old_state(rocksdb, wipe):
    """Over a restart with the local state, and over a restore from the changelogs."""
    with TopologyTestDriver(totals(JsonSerde(), add_v0), rocksdb=rocksdb) as driver:
        orders = driver.create_input_topic("orders", StringSerde(), JsonSerde())
        orders.pipe_input("a", {"price": 1.5}, 10)
        orders.pipe_input("b", {"price": 4}, 10)
        driver.restart(wipe, totals(V2, add_v2))
        orders.pipe_input("a", {"price": 2}, 20)
        store = driver.get_store("totals")
        assert store.get("a").value == {"cents": 350, "currency": "EUR"}
        assert store.get("b").value == {"cents": 400, "currency": "EUR"}, "never written since, and still of version 0"
        driver.restart(wipe, totals(V2, add_v2))
        orders.pipe_input("a", {"price": 1}, 30)
        assert driver.get_store("totals").get("a").value == {"cents": 450, "currency": "EUR"}
        last = driver.create_output_topic("by-window-out", value_serde=V2).read_records_to_list()[-1]
        assert last.value == {"cents": 450, "currency": "EUR"}
