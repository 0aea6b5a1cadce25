"""Fixtures: a broker behind a proxy, and a topic on it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.drills.brokers import Proxy, proxied_broker


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied_broker(tmp_path_factory.mktemp("kafka")) as (_, started):
        yield started


@pytest.fixture
def client(proxy: Proxy) -> dict[str, str]:
    return {"bootstrap.servers": proxy.bootstrap_servers}


@pytest.fixture
def topic(client: dict[str, str]) -> str:
    name = f"topic-{uuid.uuid4().hex}"
    with KafkaAdmin(client) as admin:
        admin.create_topics([TopicSpec(name, 1, {"retention.ms": "-1"}, 1)])
    return name
