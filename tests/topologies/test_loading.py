"""Loading into real Kafka, and reading back."""

import pytest

from streams.broker import EmbeddedBroker
from tests.conftest import TopicFactory
from topologies.devices_data import Devices
from topologies.devices_load import load, partitions_of
from topologies.flights_data import load as load_flights
from topologies.records import LoadError, Records, create_topics, produce, read_table, shown


@pytest.fixture
def client(broker: EmbeddedBroker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


def test_a_table_is_read_back_as_it_was_loaded(client: dict[str, str], topic: TopicFactory):
    _, planes = load_flights().tables()
    name = topic(4)
    with shown("planes", len(planes)) as advance:
        assert produce(client, [Records(name, planes.keys, planes.values, planes.timestamps)], advance) == 3_322
    table = read_table(client, name)
    assert len(table) == 3_322
    assert table["N14228"]["manufacturer"] == "BOEING"


def test_readings_are_loaded_whole(client: dict[str, str], topic: TopicFactory):
    devices = Devices(slots=300, devices=50)
    name = topic(4)
    told: list[int] = []
    assert load(client, devices, name, advance=told.append) == sum(told) == 15_000
    last = read_table(client, name)
    assert len(last) == 50
    assert set(partitions_of(devices).tolist()) == {0, 1, 2, 3}


def test_topics_that_exist_are_refused(client: dict[str, str], topic: TopicFactory):
    with pytest.raises(LoadError, match="already exist"):
        create_topics(client, [topic()])
