"""`streams reset` with positions shows what it would do, and does it when it is told to and nothing runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams.application import instances
from streams.checkpoint.files import read_checkpoint
from streams.cli import reset as command
from tests.doctor.world import NOW_MS, Kafka, World

LATER_S = NOW_MS / 1000 + 3_600


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """An application that has run an hour ago, below the command."""
    world = World(tmp_path / "var").run()

    @contextmanager
    def admin(*_: object) -> Iterator[Kafka]:
        yield world.kafka

    monkeypatch.setattr(command, "KafkaAdmin", admin)
    monkeypatch.setattr(command, "live", lambda config: world.kafka)
    monkeypatch.setattr(command, "reachable", lambda config: config)
    monkeypatch.setattr(command, "check_reset_rights", lambda *_: None)
    # Nobody is a member of its group; asking a broker that is not there would take ten seconds.
    monkeypatch.setattr(instances, "Survey", lambda client: SimpleNamespace(group_members=lambda group: []))
    monkeypatch.setattr(command.time, "time", lambda: LATER_S)
    return world


def run(streams: Any, *more: str) -> Any:
    return streams("reset", "app", "-b", "nowhere:1", *more)


def test_a_reset_to_a_time_is_shown_first(streams: Any, world: World, tmp_path: Path) -> None:
    before = world.kafka.topics
    shown = run(streams, "--to-datetime", "2023-01-01")
    assert shown.exit_code == 0, shown.output
    assert "in then begins to read at in-0: 0, in-1: 0, with empty stores" in shown.output
    assert shown.output.endswith("nothing was deleted: --execute carries this out\n")
    assert world.kafka.topics == before
    done = run(streams, "--by-duration", "2h", "--execute")
    assert done.exit_code == 0, done.output
    assert world.kafka.topics == {"in", "out"}
    found = read_checkpoint(world.files, "in")
    assert found.first is not None
    assert found.first.start.topics["in"].offsets == (0, 0)
    assert (found.logged, found.query_id is None) == (-1, False)


def test_it_is_refused_while_the_application_may_run(
    streams: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = max(world.kafka.max_timestamps([("app-in-commits", number) for number in range(2)]).values())
    monkeypatch.setattr(command.time, "time", lambda: newest / 1000 + 7)
    before = world.kafka.topics
    for more in ((), ("--keep-state",)):
        refused = run(streams, "--by-duration", "2h", "--execute", *more)
        assert refused.exit_code == 1
        assert "app may still be running: the last commit is 7 s old" in refused.output
    assert world.kafka.topics == before


def test_offsets_come_from_a_file_and_the_state_can_be_kept(streams: Any, world: World, tmp_path: Path) -> None:
    (tmp_path / "to.csv").write_text("in,0,1\nin,1,2\n")
    keep = ("--to-offsets", str(tmp_path / "to.csv"), "--keep-state")
    shown = run(streams, *keep)
    assert shown.exit_code == 0, shown.output
    assert "in continues at in-0: 1, in-1: 2" in shown.output
    assert "Records that are read again are counted again" in shown.output
    assert "nothing was written: --execute carries this out" in shown.output
    done = run(streams, *keep, "--execute", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"application_id": "app", "moved": True, "start": {"in": {"in": [1, 2]}}}
    assert world.findings() == {}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--to-datetime", "1", "--by-duration", "1h"), "are mutually exclusive"),
        (("--by-duration", "soon"), "--by-duration: 'soon' is not a duration"),
        (("--keep-state",), "--keep-state only moves positions: say where to"),
    ],
)
def test_what_cannot_be_understood_changes_nothing(
    streams: Any, world: World, more: tuple[str, ...], said: str
) -> None:
    before = world.kafka.topics
    refused = run(streams, *more, "--execute")
    assert (refused.exit_code, said in refused.output) == (1, True), refused.output
    assert world.kafka.topics == before
