"""Keys of a schema registry: whichever schema wrote one, it is one key."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from streams import (
    AvroSerde,
    BytesSerde,
    Consumed,
    Joined,
    JsonSchemaSerde,
    JsonSerde,
    Materialized,
    Produced,
    ProtobufSerde,
    RegistryError,
    SchemaRegistry,
    Serde,
    StreamsBuilder,
)
from streams.testing import TopologyTestDriver
from tests.serdes.registry_server import FakeRegistry
from tests.serdes.test_registry import message_class

J = JsonSerde()
ID, SHOP = {"name": "id", "type": "long"}, {"name": "shop", "type": "string"}


def record(*fields: dict[str, Any], **more: Any) -> str:
    return json.dumps({"type": "record", "name": "Key", "namespace": "shop", "fields": list(fields), **more})


def counts(serde: Serde[Any], written: list[bytes], tasks: int, headers: Any = ()) -> tuple[list[Any], list[Any]]:
    """The counts of keys, and the users that they are joined with, whose keys come in the other order."""
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(serde, J))
    stream.group_by_key().count(Materialized("n")).to_stream().to("out", Produced(serde, J))
    users = builder.table("users", Consumed(serde, J))
    behind = stream.filter(lambda k, v: True)
    behind.left_join(users, lambda v, u: u, Joined(key_serde=serde)).to("joined", Produced(serde, J))
    with TopologyTestDriver(builder.build(), tasks=tasks) as driver:
        for topic, keys in (("users", written[::-1]), ("in", written)):
            for key in keys:
                driver.create_input_topic(topic, BytesSerde(), J).pipe_input(key, "u", 1, headers)
        out = driver.create_output_topic("out", BytesSerde(), J).read_key_values_to_list()
        joined = driver.create_output_topic("joined", BytesSerde(), J).read_values_to_list()
    # The sink writes what the serde writes, under its own subject.
    assert len({key for key, _ in out}) == 1
    return [n for _, n in out], joined


@pytest.mark.parametrize("tasks", [1, 2, 4, 8])
def test_avro_keys_of_other_schemas(registry: SchemaRegistry, tasks: int) -> None:
    serde = AvroSerde(registry, record(ID, SHOP), is_key=True)
    others = [record(SHOP, ID), record(ID, SHOP, doc="a key"), record(ID, SHOP, {"name": "more", "type": "int"})]
    keys = [{"id": 7, "shop": "a", "more": 1}, {"id": 8, "shop": "b", "more": 1}]
    producers = [serde, *(AvroSerde(registry, other, is_key=True) for other in others)]
    for key in keys:
        written = [
            producer.serialize("in", key if producer is producers[-1] else {"id": key["id"], "shop": key["shop"]})
            for producer in producers
        ]
        assert counts(serde, written, tasks) == ([1, 2, 3, 4], ["u"] * 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("tasks", [1, 4])
def test_avro_keys_whose_id_is_in_the_headers(registry: SchemaRegistry, tasks: int) -> None:
    """What is canonical needs no header, whatever a header says."""
    serde = AvroSerde(registry, record(ID, SHOP), is_key=True, ids_in_headers=True)
    data = serde.serialize("in", {"id": 7, "shop": "a longer name"})
    assert data is not None
    headers = [("__key_schema_id", b"\x01" + uuid.UUID(int=int.from_bytes(data[1:5], "big")).bytes)]
    assert counts(serde, [data[5:], data[5:]], tasks, headers) == ([1, 2], ["u", "u"])


@pytest.mark.parametrize("tasks", [1, 4])
def test_protobuf_and_json_keys(registry: SchemaRegistry, tasks: int) -> None:
    kind, other = message_class("shop", "town"), message_class("shop", "town", "more")
    made = ProtobufSerde(registry, kind, is_key=True)
    by_proto = [
        made.serialize("in", kind(shop="a", town="b")),
        ProtobufSerde(registry, other, is_key=True).serialize("in", other(shop="a", town="b")),
    ]
    assert by_proto[0] != by_proto[1]
    assert counts(made, by_proto, tasks) == ([1, 2], ["u", "u"])  # type: ignore[arg-type]
    schema = json.dumps({"title": "Key", "type": "object"})
    serde = JsonSchemaSerde(registry, schema, is_key=True)
    head = (serde.serialize("in", {"id": 7, "shop": "a"}) or b"")[:5]
    by_json = [
        head + text for text in (b'{"id":7,"shop":"a"}', b'{"shop": "a", "id": 7}', b'{"id":7, "shop":"\\u0061"}')
    ]
    assert counts(serde, by_json, tasks) == ([1, 2, 3], ["u"] * 3)


def test_a_program_without_state_registers_no_schema_of_keys(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    """What passes through is not looked up by key."""
    data = AvroSerde(registry, record(ID), is_key=True).serialize("elsewhere", {"id": 1})
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(AvroSerde(registry, record(ID, doc="own"), is_key=True), J))
    stream.filter(lambda k, v: True).map(lambda k, v: (v, v)).to("out", Produced(J, J))
    with TopologyTestDriver(builder.build(), tasks=4) as driver:
        driver.create_input_topic("in", BytesSerde(), J).pipe_input(data, 1)
        assert driver.create_output_topic("out", J, J).read_values_to_list() == [1]
    assert list(fake.subjects) == ["elsewhere-key"]


def test_a_silent_registry_stops_the_step_before_a_key_is_routed(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    serde = AvroSerde(registry, record(ID, doc="another"), is_key=True)
    data = AvroSerde(registry, record(ID), is_key=True).serialize("in", {"id": 1})
    builder = StreamsBuilder()
    builder.stream("in", Consumed(serde, J)).group_by_key().count().to_stream().to("out", Produced(serde, J))
    settings: Any = {"deserialization": "skip", "processing": "skip"}
    with TopologyTestDriver(builder.build(), tasks=4, **settings) as driver:
        fake.down = True
        with pytest.raises(RegistryError):
            driver.create_input_topic("in", BytesSerde(), J).pipe_input(data, 1)
