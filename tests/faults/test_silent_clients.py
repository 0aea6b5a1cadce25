"""Clients whose broker does not answer any more, though it would answer another client: each kind is replaced by a new one.

A lost reply stands for it here: the connection then waits for a minute. What it is for is librdkafka's issue 5301, which comes now
and then only: told of a cluster without brokers, as while the only one has missed its heartbeats, a client forgets all
addresses and never asks anybody again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import state.kafka.range_reader
from state.errors import KafkaClientError, ReadTimeoutError
from state.kafka.admin import KafkaAdmin
from state.kafka.consumers import RecordSampler
from state.kafka.reader import open_range_reader
from streams.drills.brokers import FETCH, LIST_OFFSETS, Proxy, ProxyAction, Rule
from tests.kafka_client.rows import Row, commit_rows

pytestmark = pytest.mark.kafka
SILENT_S = 1.0


@pytest.fixture
def lost(proxy: Proxy) -> Iterator[list[Rule]]:
    """The rules of a test, whose connections are closed at its end."""
    rules: list[Rule] = []
    yield rules
    for rule in rules:
        rule.release()


def test_an_admin_client(proxy: Proxy, client: dict[str, str], topic: str, lost: list[Rule]) -> None:
    with KafkaAdmin(client, timeout_s=2) as admin:
        assert admin.end_offsets([(topic, 0)]) == {(topic, 0): 0}
        lost.append(proxy.on(LIST_OFFSETS, ProxyAction.LOSE_REPLY))
        with pytest.raises(KafkaClientError) as caught:
            admin.end_offsets([(topic, 0)])
        assert caught.value.transient
        assert admin.end_offsets([(topic, 0)]) == {(topic, 0): 0}


@pytest.mark.parametrize("bulk", [True, False], ids=["bulk", "ordinary"])
def test_a_reader(
    proxy: Proxy,
    client: dict[str, str],
    topic: str,
    bulk: bool,
    lost: list[Rule],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state.kafka.range_reader, "_SILENT_S", SILENT_S)
    commit_rows(client, topic, [Row(None, b"a"), Row(None, b"b")])
    reader = open_range_reader(client, topic, 0, 0, bulk, timeout_s=20)
    values = [value for run in reader.read(3) for value in run.values.to_pylist()]
    lost.append(proxy.on(FETCH, ProxyAction.LOSE_REPLY))
    assert lost[0].hit.wait(20)
    commit_rows(client, topic, [Row(None, b"c")])
    began = time.monotonic()
    values += [value for run in reader.read(5) for value in run.values.to_pylist()]
    assert values == [b"a", b"b", b"c"]
    assert time.monotonic() - began > SILENT_S, "the reader has not been silent"
    reader.close()


def test_a_sampler(proxy: Proxy, client: dict[str, str], topic: str, lost: list[Rule]) -> None:
    commit_rows(client, topic, [Row(None, b"a")])
    sampler = RecordSampler(client, timeout_s=2)
    first, ends = {(topic, 0): 0}, {(topic, 0): 2}
    assert len(sampler.sample(first, ends)[topic, 0]) == 1
    lost.append(proxy.on(FETCH, ProxyAction.LOSE_REPLY))
    with pytest.raises(ReadTimeoutError):
        sampler.sample(first, ends)
    assert len(sampler.sample(first, ends)[topic, 0]) == 1
    sampler.close()
