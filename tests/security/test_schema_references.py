"""Schemas are closed: what one refers to comes from the registry or not at all, so whoever may register one reaches no network."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from streams import AvroSerde, JsonSchemaSerde, SchemaRegistry, SerdeError
from tests.serdes.registry_server import FakeRegistry, running


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with running() as registry:
        yield registry


@pytest.fixture
def connections(fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The addresses that this process connects to, or looks up the names of, apart from the registry's."""
    found: list[Any] = []
    port = int(fake.url.rpartition(":")[2])
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def connecting(self: socket.socket, address: Any) -> None:
        if address[1] != port:
            found.append(address)
        connect(self, address)

    def looking_up(host: Any, *more: Any, **named: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            found.append(host)
        return look_up(host, *more, **named)

    monkeypatch.setattr(socket.socket, "connect", connecting)
    monkeypatch.setattr(socket, "getaddrinfo", looking_up)
    return found


@pytest.fixture
def registry(fake: FakeRegistry) -> SchemaRegistry:
    return SchemaRegistry(fake.url, {"max.retries": 0, "timeout": 59})


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:9/x.json", "https://schemas.invalid/x.json", "file:///etc/hostname", "ftp://127.0.0.1:9/x"],
)
def test_a_json_schema_that_refers_to_a_file_or_an_address_is_refused_by_name(
    address: str, registry: SchemaRegistry, connections: list[Any]
) -> None:
    schema = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"$ref": address}}})
    with pytest.raises(SerdeError, match=f"refers to {address}, which is not fetched"):
        JsonSchemaSerde(registry, schema).serialize("orders", {"id": 5})
    assert connections == []


@pytest.mark.parametrize("name", ["http://127.0.0.1:9/Item", "elsewhere.Item", "/etc/hostname"])
def test_an_avro_schema_that_refers_to_an_unknown_type_is_refused_without_looking_for_it(
    name: str, registry: SchemaRegistry, connections: list[Any]
) -> None:
    schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "item", "type": name}]})
    with pytest.raises(SerdeError, match="cannot write"):
        AvroSerde(registry, schema).serialize("orders", {"item": {}})
    assert connections == []
