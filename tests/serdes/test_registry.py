"""Avro, Protobuf and JSON Schema through Confluent's client.

No schema registry can be installed where these tests run, so the other side is `registry_server`: real HTTP on the loopback
interface and the registry's documented REST API, but not the registry itself.
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import uuid
from dataclasses import asdict, dataclass

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark import cloudpickle

from streams import (
    AvroSerde,
    ConfigError,
    Consumed,
    JsonSchemaSerde,
    Materialized,
    Produced,
    ProtobufSerde,
    RegistryError,
    SchemaRegistry,
    Serde,
    SerdeError,
    StreamsBuilder,
)
from streams.serdes import registry as registry_module
from streams.serdes.base import serde_identity
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan
from tests.serdes.registry_server import QUICK


def avro(name: str, *fields: dict) -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields)})


ID = {"name": "id", "type": "long"}
ORDER = avro("Order", ID, {"name": "item", "type": "string"})
ORDER_2 = avro(
    "Order", ID, {"name": "item", "type": "string"}, {"name": "currency", "type": "string", "default": "EUR"}
)
JSON_ORDER = json.dumps(
    {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
)


def message_class(*fields: str) -> type:
    """A message class as protoc would generate it for `shop.Item` with these text fields."""
    file = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Item")
    for number, name in enumerate(fields, 1):
        kind = descriptor_pb2.FieldDescriptorProto
        message.field.add(name=name, number=number, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Item"))


Price = message_class("currency", "amount")


def test_the_wire_format_of_avro(fake, registry):
    serde = AvroSerde(registry, ORDER)
    assert isinstance(serde, Serde)
    data = serde.serialize("orders", {"id": 150, "item": "tea"})
    # Magic byte, id 1 in 4 bytes, then Avro: zigzag 150 = 0xac 0x02, length 3 = 0x06.
    assert data == b"\x00" + (1).to_bytes(4, "big") + b"\xac\x02\x06tea"
    assert serde.deserialize("orders", data) == {"id": 150, "item": "tea"}
    assert serde.serialize("orders", None) is None is serde.deserialize("orders", None)
    assert fake.subjects == {"orders-value": [1]}


@dataclass
class OrderObject:
    id: int
    item: str


def test_a_schema_comes_from_a_file_and_values_from_a_dataclass(fake, registry, tmp_path):
    path = tmp_path / "order.avsc"
    path.write_text(ORDER)
    serde = AvroSerde(registry, path, to_dict=asdict, from_dict=lambda found: OrderObject(**found))
    path.unlink()  # workers do not have it
    assert serde.deserialize("orders", serde.serialize("orders", OrderObject(1, "tea"))) == OrderObject(1, "tea")
    assert AvroSerde(registry, ORDER).serialize("orders", {"id": 1, "item": "tea"}) == serde.serialize(
        "orders", OrderObject(1, "tea")
    )


@pytest.mark.parametrize("make", [AvroSerde, JsonSchemaSerde])
def test_a_schema_file_that_is_not_there_is_named_where_the_serde_is_made(make, registry, tmp_path):
    with pytest.raises(ConfigError, match=r"The schema cannot be read from '.*none.avsc': No such file"):
        make(registry, tmp_path / "none.avsc")


def test_the_wire_format_of_json_schema(fake, registry):
    serde = JsonSchemaSerde(registry, JSON_ORDER)
    data = serde.serialize("orders", {"id": 5})
    assert data[:5] == b"\x00\x00\x00\x00\x01"
    assert json.loads(data[5:]) == {"id": 5}
    assert serde.deserialize("orders", data) == {"id": 5}
    assert fake.schemas[1]["schemaType"] == "JSON"
    with pytest.raises(SerdeError, match=r"JsonSchemaSerde cannot write a dict to topic 'orders'"):
        serde.serialize("orders", {"id": "five"})
    strict = JsonSchemaSerde(registry, JSON_ORDER, reader_schema=JSON_ORDER.replace("integer", "string"))
    with pytest.raises(SerdeError, match="cannot read"):
        strict.deserialize("orders", data)


BIG = 2**64 + 1


def test_json_with_a_schema_has_integers_of_any_size_and_no_nan(registry):
    serde = JsonSchemaSerde(registry, json.dumps({"title": "Any", "type": "object"}))
    for one in (serde, serde.kept()):
        data = one.serialize("t", {"id": BIG, "all": [-BIG]})
        assert data[5:] == b'{"id":%d,"all":[-%d]}' % (BIG, BIG)
        assert serde.deserialize("t", data) == {"id": BIG, "all": [-BIG]}
        for number in (float("nan"), float("inf")):
            with pytest.raises(SerdeError, match=r"not (a )?finite"):
                one.serialize("t", {"x": number})
    with pytest.raises(SerdeError, match="cannot read"):
        serde.deserialize("t", data[:5] + b'{"x": NaN}')


def test_a_kept_value_of_json_with_a_schema_is_one_of_json(registry):
    serde = JsonSchemaSerde(registry, json.dumps({"title": "Any", "type": "object"}))
    at = uuid.UUID(int=1)
    assert serde.deserialize("t", serde.serialize("t", {"at": at})) == {"at": str(at)}
    with pytest.raises(SerdeError, match=r"JsonSchemaSerde cannot keep a dict for 't'.*in \['at'\]"):
        serde.kept().serialize("t", {"at": at})
    assert serde.kept() == serde
    assert serde_identity(serde.kept()) == serde_identity(serde)


def referring(address: str) -> str:
    return json.dumps({"title": "Order", "type": "object", "properties": {"id": {"$ref": address}}})


def test_a_json_schema_has_nothing_fetched(fake, registry, monkeypatch):
    """Not even from an address that the client itself lets pass, as it refuses those of private networks."""
    called: list[str] = []
    client = importlib.import_module("confluent_kafka.schema_registry.common.json_schema")
    monkeypatch.setattr(client.httpx, "get", lambda address, **_: called.append(address))
    elsewhere = "http://93.184.216.34/order.json"
    data = JsonSchemaSerde(registry, JSON_ORDER).serialize("orders", {"id": 5})
    fake.schemas[1]["schema"] = referring(elsewhere)
    another = SchemaRegistry(fake.url, {**QUICK, "timeout": 50})  # which has not kept the schema that it wrote with
    with pytest.raises(SerdeError, match=rf"cannot read .* {elsewhere}, which is not fetched"):
        JsonSchemaSerde(another, JSON_ORDER).deserialize("orders", data)
    with pytest.raises(SerdeError, match=rf"cannot write .* {elsewhere}, which is not fetched"):
        JsonSchemaSerde(registry, referring(elsewhere)).serialize("orders", {"id": 5})
    assert called == []


def test_a_json_schema_refers_to_itself_and_to_the_drafts(registry):
    for address, fits in (("#/$defs/id", 5), ("http://json-schema.org/draft-07/schema#", {"type": "string"})):
        schema = json.loads(referring(address)) | {"$defs": {"id": {"type": "integer"}}}
        serde = JsonSchemaSerde(registry, json.dumps(schema))
        value = {"id": fits}
        assert serde.deserialize("orders", serde.serialize("orders", value)) == value
        with pytest.raises(SerdeError, match="cannot write"):
            serde.serialize("orders", {"id": "five"})


def test_the_wire_format_of_protobuf(fake, registry):
    serde = ProtobufSerde(registry, Price)
    price = Price(currency="EUR", amount="3")
    data = serde.serialize("prices", price)
    # Magic byte, id, the message's index 0 in its file as the short form 0x00, then the message.
    assert data == b"\x00\x00\x00\x00\x01\x00" + price.SerializeToString()
    assert serde.deserialize("prices", data) == price
    assert fake.schemas[1]["schemaType"] == "PROTOBUF"
    assert serde_identity(serde) == "ProtobufSerde(is_key=False, message=shop.Item)"
    with pytest.raises(SerdeError, match="ProtobufSerde cannot write a dict"):
        serde.serialize("prices", {"amount": "3"})


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("topic", {"orders-key", "orders-value"}),
        ("record", {"shop.Order"}),
        ("topic-record", {"orders-shop.Order"}),
        (lambda topic, is_key, record: f"{topic}/{'k' if is_key else 'v'}/{record}", None),
    ],
)
def test_subjects(fake, registry, subject, expected):
    for is_key in (True, False):
        serde = AvroSerde(registry, ORDER, is_key=is_key, subject=subject)
        data = serde.serialize("orders", {"id": 1, "item": "tea"})
        assert serde.deserialize("orders", data)["id"] == 1
    assert set(fake.subjects) == (expected or {"orders/k/shop.Order", "orders/v/shop.Order"})


@pytest.mark.parametrize("subject", ["topic", "record", "topic-record"])
def test_subjects_of_the_other_formats(fake, registry, subject):
    JsonSchemaSerde(registry, JSON_ORDER, subject=subject).serialize("a", {"id": 1})
    ProtobufSerde(registry, Price, subject=subject).serialize("b", Price())
    names = {"topic": ("a-value", "b-value"), "record": ("Order", "shop.Item")}
    assert tuple(fake.subjects) == names.get(subject, ("a-Order", "b-shop.Item"))


def test_old_avro_records_are_read_as_the_new_schema(registry):
    old = AvroSerde(registry, ORDER).serialize("orders", {"id": 1, "item": "tea"})
    new = AvroSerde(registry, ORDER_2)
    assert new.deserialize("orders", old) == {"id": 1, "item": "tea", "currency": "EUR"}
    data = new.serialize("orders", {"id": 2, "item": "tea", "currency": "CHF"})
    assert AvroSerde(registry, ORDER).deserialize("orders", data) == {"id": 2, "item": "tea"}
    assert AvroSerde(registry).deserialize("orders", data)["currency"] == "CHF"
    only_id = AvroSerde(registry, ORDER_2, reader_schema=avro("Order", ID))
    assert only_id.deserialize("orders", data) == {"id": 2}


def test_old_protobuf_records_are_read_as_the_new_class(fake, registry):
    old, new = message_class("name"), message_class("name", "colour")
    data = ProtobufSerde(registry, old).serialize("items", old(name="cup"))
    found = ProtobufSerde(registry, new).deserialize("items", data)
    assert (found.name, found.colour) == ("cup", "")
    ProtobufSerde(registry, new).serialize("items", new(name="cup", colour="red"))
    assert fake.subjects == {"items-value": [1, 2]}


def test_a_message_keeps_fields_that_its_class_does_not_have(registry):
    old, new = message_class("name"), message_class("name", "colour")
    serde = ProtobufSerde(registry, old)
    red = ProtobufSerde(registry, new).serialize("items", new(name="cup", colour="red"))
    again = serde.kept().serialize("items", serde.deserialize("items", red))
    assert ProtobufSerde(registry, new).deserialize("items", again).colour == "red"


def test_ids_in_headers_are_read_where_that_is_asked_for(registry):
    data = AvroSerde(registry, ORDER).serialize("orders", {"id": 1, "item": "green tea"})
    headers = (("__value_schema_id", b"\x01" + uuid.UUID(int=1).bytes),)
    assert AvroSerde(registry, ids_in_headers=True).deserialize("orders", data[5:], headers)["item"] == "green tea"
    assert AvroSerde(registry, ids_in_headers=True).deserialize("orders", data)["item"] == "green tea"
    # A kept header of the source record says nothing about what was written since, into a store for instance.
    assert AvroSerde(registry, ORDER).deserialize("store", data, headers)["item"] == "green tea"


def test_without_a_schema_the_newest_one_is_written(fake, registry):
    AvroSerde(registry, ORDER).serialize("orders", {"id": 1, "item": "tea"})
    AvroSerde(registry, ORDER_2).serialize("orders", {"id": 1, "item": "tea", "currency": "EUR"})
    data = AvroSerde(registry).serialize("orders", {"id": 3, "item": "tea", "currency": "CHF"})
    assert data[:5] == b"\x00\x00\x00\x00\x02"


@dataclass
class Order:
    id: int
    item: str


def test_values_of_ones_own(registry):
    serde = AvroSerde(registry, ORDER, to_dict=lambda order: vars(order), from_dict=lambda found: Order(**found))
    assert serde.deserialize("orders", serde.serialize("orders", Order(1, "tea"))) == Order(1, "tea")


def test_the_registry_is_asked_once(fake, registry):
    serde = AvroSerde(registry, ORDER)
    for number in range(20):
        serde.deserialize("orders", serde.serialize("orders", {"id": number, "item": "tea"}))
    assert len(fake.requests) <= 2


def test_without_auto_registration_a_schema_must_be_there(fake, registry):
    serde = AvroSerde(registry, ORDER, auto_register=False)
    with pytest.raises(RegistryError, match=r"writing to topic 'orders'.*Subject 'orders-value' not found"):
        serde.serialize("orders", {"id": 1, "item": "tea"})
    assert not fake.subjects
    AvroSerde(registry, ORDER).serialize("orders", {"id": 1, "item": "tea"})
    assert serde.serialize("orders", {"id": 1, "item": "tea"})


def test_bad_records_are_the_records_fault(registry):
    serde = AvroSerde(registry, ORDER)
    with pytest.raises(SerdeError, match="AvroSerde cannot write a dict to topic 'orders'"):
        serde.serialize("orders", {"id": "one"})
    for data in (b"{}", b"\x01\x00\x00\x00\x01abc", b"\x00\x00\x00\x00\x63abc"):
        with pytest.raises(SerdeError, match=f"AvroSerde cannot read {len(data)} bytes of topic 'orders'"):
            serde.deserialize("orders", data)


def test_a_failing_registry_is_not_a_records_fault(fake, registry):
    fake.incompatible.add("orders-value")
    with pytest.raises(RegistryError, match="incompatible"):
        AvroSerde(registry, ORDER).serialize("orders", {"id": 1, "item": "tea"})
    fake.down = True
    for call in (
        lambda: AvroSerde(registry, ORDER).serialize("other", {"id": 1, "item": "tea"}),
        lambda: AvroSerde(registry).deserialize("other", b"\x00\x00\x00\x00\x07abc"),
        lambda: AvroSerde(SchemaRegistry("http://127.0.0.1:1", QUICK)).deserialize("t", b"\x00\x00\x00\x00\x01abc"),
    ):
        with pytest.raises(RegistryError, match="No record was skipped"):
            call()


def topology(registry):
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed(value_serde=AvroSerde(registry, ORDER)))
    how = Materialized(name="last", value_serde=AvroSerde(registry, ORDER))
    orders.to_table(how).to_stream().map_values(lambda order: Price(amount=str(order["id"]))).to(
        "prices", Produced(value_serde=ProtobufSerde(registry, Price))
    )
    return builder.build()


def test_in_a_topology_over_a_restart(fake, registry):
    with TopologyTestDriver(topology(registry)) as driver:
        orders, prices = driver.create_input_topic("orders"), driver.create_output_topic("prices")
        orders.pipe_input("a", {"id": 7, "item": "tea"}, 1)
        driver.restart()
        assert driver.get_store("last").get("a").value == {"id": 7, "item": "tea"}
        assert prices.read_value() == Price(amount="7")
    # The store's values have a subject of their own, as in Kafka Streams.
    assert set(fake.subjects) == {"orders-value", "test-last-changelog-value", "prices-value"}


def test_no_policy_skips_what_a_silent_registry_cannot_tell(fake, registry):
    with TopologyTestDriver(topology(registry), deserialization="skip", production="skip") as driver:
        fake.down = True
        with pytest.raises(RegistryError):
            driver.create_input_topic("orders").pipe_bytes(b"a", b"\x00\x00\x00\x00\x01abc", 1)
        assert driver.dropped() == 0


def test_schemas_and_addresses_are_not_part_of_the_topology_hash(registry):
    def hashed(serde):
        builder = StreamsBuilder()
        builder.stream("in").to_table(Materialized(name="t", value_serde=serde))
        return build_plan(builder.build(), "app").sub_topologies[0].topology_hash

    moved = SchemaRegistry("http://elsewhere:8081", QUICK)
    assert hashed(AvroSerde(registry, ORDER)) == hashed(AvroSerde(moved, ORDER_2, subject="record"))
    assert hashed(AvroSerde(registry, ORDER)) != hashed(JsonSchemaSerde(registry, JSON_ORDER))
    assert serde_identity(AvroSerde(registry, ORDER)) == "AvroSerde(is_key=False)"


def test_passwords_are_used_and_not_shown(fake):
    secret = SchemaRegistry(fake.url, {**QUICK, "basic.auth.user.info": "me:geheim"})
    assert AvroSerde(secret, ORDER).serialize("orders", {"id": 1, "item": "tea"})
    assert any(login and login.startswith("Basic ") for login in fake.logins)
    in_url = SchemaRegistry("https://me:geheim@registry:8081,https://me:geheim@other:8081/x")
    for shown in (repr(secret), repr(AvroSerde(secret, ORDER)), repr(in_url), serde_identity(AvroSerde(in_url))):
        assert "geheim" not in shown
    assert repr(in_url) == "SchemaRegistry('https://registry:8081,https://other:8081')"


def test_serdes_pickle_and_compare(registry):
    serde = AvroSerde(registry, ORDER)
    data = serde.serialize("orders", {"id": 1, "item": "tea"})
    for copy in (pickle.loads(pickle.dumps(serde)), cloudpickle.loads(cloudpickle.dumps(serde))):
        assert copy == serde
        assert copy.deserialize("orders", data) == {"id": 1, "item": "tea"}
    assert serde != AvroSerde(registry, ORDER_2)


def test_settings_are_checked_where_the_topology_is_built(registry, monkeypatch):
    with pytest.raises(ConfigError, match="subject='topics'"):
        AvroSerde(registry, ORDER, subject="topics")
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry.avro", None)
    registry_module.load.cache_clear()
    with pytest.raises(ConfigError, match=r"streams-on-spark\[registry\]"):
        AvroSerde(registry, ORDER)
    registry_module.load.cache_clear()
