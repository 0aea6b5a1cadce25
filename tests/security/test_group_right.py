"""Readers join no group, so the right on their group is not needed: its refusal comes as a message without a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from state.kafka import consumers as sampler
from state.kafka.consumers import RecordSampler


class Refusal:
    """What librdkafka delivers of an error that is about the client as a whole."""

    def topic(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def error(self) -> KafkaError:
        return KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)


class Record:
    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 3

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"value"


class Consumer:
    """A consumer that is first refused its group, and then has a record."""

    def __init__(self, *_: Any) -> None:
        self._waiting: list[Any] = [Refusal(), Record()]

    def consume(self, *_: Any) -> Sequence[Any]:
        return [self._waiting.pop(0)]

    def assign(self, *_: Any) -> None:
        """Nothing to do."""

    unassign = pause = resume = close = assign


def test_a_sample_goes_on_without_the_right_on_the_readers_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "Consumer", Consumer)
    found = RecordSampler({}).sample({("in", 3): 7}, {("in", 3): 8})
    assert [(one.offset, one.timestamp_ms, one.size) for one in found["in", 3]] == [(7, 1_000, 8)]
