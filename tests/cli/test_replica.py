"""`streams replica` waits while topics are missing or brokers are away, and says so once."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pytest
import typer

from state.errors import KafkaClientError, TopicNotFoundError
from state.restore.verify import TaskPlace
from streams.application.restore import ReplicaPosition, ReplicaTask
from streams.cli.replica import _follow, _line

WARM = ReplicaPosition(ReplicaTask(TaskPlace("app", "in", 0, 1, "hash"), ()), version=3, behind=0)


class Member:
    """A group member with one task."""

    def poll(self, timeout_s: float) -> Set[tuple[str, int]]:
        return {("app-in-commits", 0)}

    def commit(self, offsets: Any) -> None:
        pass


class Kept:
    """A replica whose looks at Kafka fail, until one does not."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def follow(self, assigned: Any) -> list[ReplicaPosition]:
        if self.errors:
            raise self.errors.pop(0)
        return [WARM]

    def offsets(self) -> dict[tuple[str, int], int]:
        return {}


def report(positions: list[ReplicaPosition]) -> None:
    for one in positions:
        typer.echo(_line(one))


def follow(*errors: Exception) -> None:
    _follow(Kept(*errors), Member(), 0.0, True, report, lambda: False)  # type: ignore[arg-type]


def test_a_replica_waits_while_a_rescale_makes_the_changelogs_anew(capsys: pytest.CaptureFixture[str]) -> None:
    missing = TopicNotFoundError("app-counts-changelog")
    follow(missing, missing)
    said = capsys.readouterr()
    assert said.out == "in task 0: step 3, up to date\n"
    assert said.err.startswith(
        "a topic of the application is missing, trying on: topic 'app-counts-changelog' does not"
    )
    assert said.err.count("\n") == 1


def test_a_replica_that_kafka_refuses_ends() -> None:
    with pytest.raises(KafkaClientError, match="refused"):
        follow(KafkaClientError("refused"))


def test_a_replica_ends_at_its_next_look_once_it_was_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    asked = iter([False, False, True])
    _follow(Kept(), Member(), 0.0, False, report, lambda: next(asked))  # type: ignore[arg-type]
    assert capsys.readouterr().out.count("up to date") == 2
