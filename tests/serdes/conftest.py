"""A schema registry in memory, and a client of it that does not wait for one that is silent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streams import SchemaRegistry
from tests.serdes.registry_server import QUICK, FakeRegistry, running


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with running() as registry:
        yield registry


@pytest.fixture
def registry(fake: FakeRegistry) -> SchemaRegistry:
    return SchemaRegistry(fake.url, QUICK)
