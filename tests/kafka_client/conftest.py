"""Fixtures: client properties, an admin client, and both implementations of reader and producer."""

from collections.abc import Iterator

import pytest

from state.kafka.admin import KafkaAdmin
from state.kafka.config import ClientConfig
from streams.broker import EmbeddedBroker


@pytest.fixture
def client(broker: EmbeddedBroker) -> ClientConfig:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def admin(client: ClientConfig) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(client) as opened:
        yield opened


@pytest.fixture(params=[True, False], ids=["bulk", "ordinary"])
def bulk(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
