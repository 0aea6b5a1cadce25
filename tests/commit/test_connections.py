"""When the producers of steps connect to the brokers."""

from __future__ import annotations

import pytest

from state.commit import live
from state.errors import KafkaClientError
from state.kafka.admin import KafkaAdmin

CLIENT = {"bootstrap.servers": "127.0.0.1:1"}
ALL_AT_ONCE = {"enable.sparse.connections": "false"}


def answer(monkeypatch: pytest.MonkeyPatch, *answers: int | KafkaClientError) -> None:
    """Answers the question for the number of brokers, once with each answer."""
    left = list(answers)

    def broker_count(_admin: KafkaAdmin) -> int:
        given = left.pop(0)
        if isinstance(given, KafkaClientError):
            raise given
        return given

    monkeypatch.setattr(KafkaAdmin, "broker_count", broker_count)


@pytest.mark.parametrize(("brokers", "expected"), [(1, ALL_AT_ONCE), (live.FEW_BROKERS + 1, {})])
def test_only_in_a_small_cluster_a_producer_connects_to_all_brokers_at_once(monkeypatch, brokers, expected) -> None:
    answer(monkeypatch, brokers)
    clients = live._ProcessClients(CLIENT)
    assert clients.connections() == expected
    assert clients.connections() == expected, "asked once"


def test_an_unanswered_question_fails_no_step_and_is_asked_again(monkeypatch) -> None:
    answer(monkeypatch, KafkaClientError("not authorized"), 3)
    clients = live._ProcessClients(CLIENT)
    assert clients.connections() == {}
    assert clients.connections() == ALL_AT_ONCE
