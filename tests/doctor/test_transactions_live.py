"""Open transactions of a real broker are shown, and ended on request."""

from __future__ import annotations

import pytest

from state.kafka.admin import KafkaAdmin, wait_until_decided
from state.kafka.producer import TransactionalProducer
from state.kafka.topics import TopicSpec
from streams.application.transactions import end, open_transactions
from streams.broker import EmbeddedBroker
from streams.cluster.admin import Survey
from streams.cluster.java_admin import JavaAdmin

TOPIC = "transactions-live"


def test_open_transactions_are_found_and_ended(broker: EmbeddedBroker) -> None:
    client = {"bootstrap.servers": broker.bootstrap_servers}
    with KafkaAdmin(client) as admin, JavaAdmin(client) as java:
        admin.create_topics([TopicSpec(TOPIC, 2)])
        places = [(TOPIC, 0), (TOPIC, 1)]

        def look() -> list[tuple[tuple[str, int], str | None, int, bool, bool]]:
            return [
                (one.place, one.transactional_id, one.producer.start_offset, one.blocks, one.hangs)
                for one in open_transactions(admin, java, places, pause=lambda: None)
            ]

        producers = [TransactionalProducer(client, f"live-{number}") for number in range(2)]
        for number, producer in enumerate(producers):
            producer.init_transactions()
            producer.begin()
            producer.send(TOPIC, number, b"k", b"v", 1)
            producer.flush()
        assert look() == [(places[0], "live-0", 0, True, False), (places[1], "live-1", 0, True, False)]
        (first, second) = open_transactions(admin, java, places, pause=lambda: None)
        assert first.age_ms(2**60) is not None

        said: list[str] = []
        end(java, [first], said.append)
        wait_until_decided(admin, [places[0]], 30)
        assert "fenced the producer of live-0" in said[0]
        # The request for a hanging transaction, which goes to the partition's leader and not to the coordinator.
        java.abort(second.place, second.producer)
        wait_until_decided(admin, [places[1]], 30)
        assert look() == []
        assert admin.end_offsets(places) == {places[0]: 2, places[1]: 2}, "a record and its abort each"
        with pytest.raises(Exception, match=r"fenced|epoch|FENCED"):
            producers[0].commit()
        for producer in producers:
            producer.close()

    survey = Survey(client)
    (settings,) = survey.broker_settings().values()
    assert int(settings["transaction.max.timeout.ms"]) > 0
    assert survey.replicas([TOPIC])[TOPIC, 0] == (1, 1)
    assert survey.group_members("no-such-group") == []
