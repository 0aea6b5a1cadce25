"""A healthy application is said to be so, a line for each check, and nothing is changed by looking."""

from __future__ import annotations

from pathlib import Path

import pytest

from state.errors import ClientFailure, KafkaClientError
from streams.application.doctor.examine import CHECKS, examine
from streams.application.doctor.inspection import Severity, worst
from tests.application.cluster import files
from tests.doctor.world import World, only


def test_a_healthy_application_has_a_line_per_check(tmp_path: Path) -> None:
    world = World(tmp_path).run()
    world.restore()
    before, events = files(tmp_path), {name: world.kafka.end_offsets([(name, 0)]) for name in world.kafka.topics}
    results = list(examine(world.inspection()))
    said = [finding for result in results for finding in result.findings]
    assert [one for one in said if one.severity is not Severity.OK] == []
    assert len(said) == len(CHECKS) + 2
    assert worst(results) is Severity.OK
    assert files(tmp_path) == before
    assert {name: world.kafka.end_offsets([(name, 0)]) for name in world.kafka.topics} == events


def test_before_the_first_start_there_is_nothing_to_find(tmp_path: Path) -> None:
    assert World(tmp_path).findings() == {}


def test_a_program_that_cannot_be_planned_is_the_only_finding(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.delete_topic("in")
    results = list(examine(world.inspection()))
    assert [result.check for result in results] == ["brokers", "program"]
    (finding,) = results[-1].findings
    assert "topic 'in' does not exist" in finding.says
    assert finding.command == "streams topic create in --partitions N"
    assert worst(results) is Severity.ERROR


def test_a_check_that_brokers_cannot_answer_yet_is_repeated_and_one_that_they_refuse_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path).run()
    loading = ClientFailure(14, "COORDINATOR_LOAD_IN_PROGRESS", "loading", retriable=True)
    answers: list[KafkaClientError | None] = [KafkaClientError("not yet", loading), None]

    def members(group: str) -> list[str]:
        if (error := answers.pop(0)) is not None:
            raise error
        return []

    monkeypatch.setattr(world.kafka, "group_members", members)
    assert world.findings() == {}
    answers.append(KafkaClientError("no right to describe the group"))
    found = only(world.findings(), "consumer group")
    assert (found.severity, found.says) == (
        Severity.WARNING,
        "this could not be looked at: no right to describe the group",
    )


def test_what_a_running_application_commits_meanwhile_is_no_finding(tmp_path: Path) -> None:
    world = World(tmp_path).run()
    inspection = world.inspection()
    assert [look.found[0].version for look in inspection.subs] == [1], "the markers are read"
    world.run("d")
    world.restore()
    found = {result.check: result.findings[0].severity for result in examine(inspection)}
    assert {found["consumer group"], found["local state"]} == {Severity.OK}
