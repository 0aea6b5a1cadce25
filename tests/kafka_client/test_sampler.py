"""A few records here and there: data records of committed transactions, whatever lies between."""

from collections.abc import Iterator

import pytest

from state.errors import TopicNotFoundError
from state.kafka.admin import KafkaAdmin
from state.kafka.config import ClientConfig
from state.kafka.consumers import RECORDS, RecordSampler, SampledRecord
from tests.conftest import TopicFactory

from .rows import Row, abort_rows, commit_rows, eventually


@pytest.fixture
def sampler(client: ClientConfig) -> Iterator[RecordSampler]:
    opened = RecordSampler(client, timeout_s=60)
    yield opened
    opened.close()


def test_only_records_that_a_reader_would_see(
    client: ClientConfig, admin: KafkaAdmin, topic: TopicFactory, sampler: RecordSampler
) -> None:
    name = topic(3)
    places = [(name, p) for p in range(3)]
    commit_rows(client, name, [Row(b"k", b"v" * 10, 100 + n) for n in range(3)])
    abort_rows(client, name, [Row(b"k", b"aborted", 5)])
    commit_rows(client, name, [Row(None, None, 200)])
    eventually(lambda: admin.end_offsets(places)[name, 0], 8)
    ends = admin.end_offsets(places)
    # Offset 3 and what follows up to 5 are control records and an aborted one; partitions 1 and 2 are empty.
    found = sampler.sample({(name, 0): 1, (name, 1): 0, (name, 2): 0}, ends)
    assert found == {
        (name, 0): [SampledRecord(1, 101, 11), SampledRecord(2, 102, 11), SampledRecord(6, 200, 0)],
        (name, 1): [],
        (name, 2): [],
    }
    assert [one.offset for one in sampler.sample({(name, 0): 3}, ends)[name, 0]] == [6]
    assert sampler.sample({(name, 0): 7}, ends) == {(name, 0): []}
    assert sampler.sample({(name, 0): 0}, {(name, 0): 2})[name, 0][-1].offset == 1


def test_little_of_many_and_places_that_are_gone(
    client: ClientConfig, admin: KafkaAdmin, topic: TopicFactory, sampler: RecordSampler
) -> None:
    name = topic()
    commit_rows(client, name, [Row(b"k", b"v") for _ in range(5 * RECORDS)])
    eventually(lambda: admin.end_offsets([(name, 0)])[name, 0], 5 * RECORDS + 1)
    admin.delete_records({(name, 0): 10})
    ends = {(name, 0): 5 * RECORDS}
    assert [one.offset for one in sampler.sample({(name, 0): 30}, ends)[name, 0]] == list(range(30, 30 + RECORDS))
    assert sampler.sample({(name, 0): 3}, ends) == {(name, 0): []}
    with pytest.raises(TopicNotFoundError, match="no-such-topic"):
        sampler.sample({("no-such-topic", 0): 0}, {("no-such-topic", 0): 5})
