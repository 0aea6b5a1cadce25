"""`streams state` on a folder that another handle has open, as a running application does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
import pytest
import typer

from state.errors import KafkaClientError, TopicNotFoundError
from state.restore.directory import StateDirectory
from state.restore.place import CopiedTask, TaskPlace
from state.stores.codec import timestamped
from state.stores.dump import read_task_store
from state.stores.task_store import StorePosition, TaskStore, open_task_store
from streams.application.restore import ReplicaPosition
from streams.application.stored_tasks import stateful_subs
from streams.broker.processes import free_ports
from streams.cli.replica import _follow, _line, metrics_of
from streams.cli.restore import restore_folder
from streams.config.settings import Address
from streams.errors import ConfigError
from tests.cli.topology import build

TARGET = "tests.cli.topology:build"
APPLICATION = "shop"
MINUTE = 60_000


def folder(root: Path, sub: str, task: int) -> Path:
    return StateDirectory(root / "var" / "state").task(APPLICATION, sub, task).path


def specs(sub: str) -> list[Any]:
    (found,) = (one for one in stateful_subs(build(), APPLICATION) if one.name == sub)
    return [node.spec for node in found.stores.values()]


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[list[TaskStore]]:
    """Two tasks of one sub-topology and one of the other, held open as by a running step."""
    opened = []
    for task in (0, 1):
        store = open_task_store(folder(tmp_path, "events", task), specs("events"))
        store.store("totals").put(b"apple" if task else b"pear", timestamped(number(3 + task), 5), 5)
        for minute in (1, 2):
            store.store("minutes").put(
                b"k%d" % task, minute * MINUTE, timestamped(number(minute), minute * MINUTE + 7), 0
            )
        store.apply(StorePosition("query", 4, {"totals": 1, "minutes": 2}, 9))
        opened.append(store)
    store = open_task_store(folder(tmp_path, "profiles", 0), specs("profiles"))
    store.store("profiles").put(b"ann", timestamped(orjson.dumps({"age": 7, "note": "[bold]x"}), 1), 1)
    store.apply(StorePosition("query", 1, {"profiles": 1}, 9))
    opened.append(store)
    yield opened
    for store in opened:
        store.close()


@pytest.fixture
def state(streams, live):
    return lambda *arguments: streams("state", TARGET, *arguments, "-a", APPLICATION)


def lines(result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [orjson.loads(line) for line in result.stdout.splitlines()]


def test_sizes(state) -> None:
    found = lines(state("--json"))
    rows = {(size["store"], size["task"]): (size["rows"], size["version"]) for size in found}
    assert rows == {
        ("totals", 0): (1, 4),
        ("minutes", 0): (2, 4),
        ("totals", 1): (1, 4),
        ("minutes", 1): (2, 4),
        ("profiles", 0): (1, 1),
    }
    assert all(0 < size["bytes"] < size["disk_bytes"] for size in found)
    table = state().output
    assert "Task on disk" in table
    assert "timestamped-window" in table


def test_rows_keys_and_counts(state) -> None:
    assert lines(state("totals", "--json")) == [
        {"task": 0, "key": "pear", "timestamp": 5, "value": 3},
        {"task": 1, "key": "apple", "timestamp": 5, "value": 4},
    ]
    assert lines(state("totals", "--json", "--task", 1))[0]["key"] == "apple"
    assert lines(state("totals", "--json", "--key", "pear"))[0]["value"] == 3
    assert lines(state("totals", "--json", "--key", "plum")) == []
    assert len(lines(state("totals", "--json", "--limit", 1))) == 1
    assert state("minutes", "--count").stdout == "4\n"
    assert state("minutes", "--count", "--key", "k1").stdout == "2\n"
    assert lines(state("minutes", "--json", "--key", "k0")) == [
        {
            "task": 0,
            "key": "k0",
            "window_start": start,
            "window_end": start + MINUTE,
            "timestamp": start + 7,
            "value": n,
        }
        for n, start in ((1, MINUTE), (2, 2 * MINUTE))
    ]


def test_tables_for_people(state) -> None:
    text = state("minutes").output
    assert "1970-01-01T00:01:00.000Z  1970-01-01T00:02:00.000Z  1970-01-01T00:01:00.007Z  1" in text
    assert '{"age":7,"note":"[bold]x"}' in state("profiles").output
    assert "There are more than 1 rows" in state("totals", "--limit", 1).output
    assert "No rows." in state("totals", "--key", "plum").output


def test_looking_warns_of_nothing(state, caplog: pytest.LogCaptureFixture) -> None:
    before = os.umask(0o022)
    try:
        state("totals")
    finally:
        os.umask(before)
    assert not caplog.records, "its temporary folders are private from the beginning"


def test_looking_changes_no_file(state, live, tmp_path: Path) -> None:
    def files() -> dict[Path, tuple[int, int] | None]:
        # The owner's RocksDB writes what it has to say into its LOG every ten seconds.
        found = ((path, path.stat()) for path in sorted(tmp_path.rglob("*")))
        return {path: None if path.name == "LOG" else (one.st_mtime_ns, one.st_size) for path, one in found}

    before = files()
    assert state().exit_code == 0
    assert files() == before


def test_what_is_open_stays_readable_while_the_owner_goes_on(live, tmp_path: Path) -> None:
    owner = live[0]
    with read_task_store(folder(tmp_path, "events", 0), specs("events")) as reader:
        for version in range(5, 40):
            owner.store("totals").put(b"pear", timestamped(number(version), version), version)
            owner.apply(StorePosition("query", version, {"totals": version, "minutes": 2}, version))
        assert [value[8:] for _, value in reader.rows("totals")] == [number(3)]
        assert reader.position == StorePosition("query", 4, {"totals": 1, "minutes": 2}, 9)
    with read_task_store(folder(tmp_path, "events", 0), specs("events")) as reader:
        assert [value[8:] for _, value in reader.rows("totals")] == [number(39)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((TARGET, "totels"), "has no store 'totels'; it has: minutes, profiles, totals"),
        ((TARGET, "totals", "--task", "7"), "there is no state of shop of task 7 in"),
        ((TARGET, "totals", "--base-dir", "elsewhere"), "read the changelogs with --from-changelog"),
        ((TARGET, "totals", "--from-changelog"), "No Kafka cluster is given"),
        (("tests.cli.topology:stateless",), "all its operators are stateless"),
    ],
)
def test_missing_state_is_reported(streams, live, arguments: tuple[str, ...], said: str) -> None:
    result = streams("state", *arguments, "-a", APPLICATION)
    assert (result.exit_code, said in result.output) == (1, True), result.output


def test_state_of_another_application_is_named(streams, live) -> None:
    result = streams("state", TARGET, "totals", "-a", "stall")
    assert result.exit_code == 1
    assert "there is no state of stall in" in result.output
    assert "(--application-id, --config)" in result.output
    assert "has the state of: shop. (more: streams errors ConfigError)\n" in result.output


def test_a_table_in_a_pipe_is_as_wide_as_its_rows(streams, live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    text = streams("state", TARGET, "minutes", "-a", APPLICATION).output
    assert "1970-01-01T00:01:00.000Z  1970-01-01T00:02:00.000Z  1970-01-01T00:01:00.007Z  1" in text


def test_a_table_in_a_narrow_terminal_breaks_its_texts_and_loses_none(
    streams, live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert "…" not in streams("state", TARGET, "profiles", "-a", APPLICATION).output


# --- The folder that `streams restore` writes to: a new one, an empty one, or one that it has left in part.


def interrupted(given, base):
    folder = None
    try:
        with restore_folder(given, base, "app") as folder:
            (folder / "part").touch()
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return folder


def test_an_interrupted_restore_says_how_to_continue_and_continues(tmp_path, capsys):
    folder = interrupted(None, tmp_path)
    assert f"--into {folder} continues" in capsys.readouterr().err
    with restore_folder(folder, tmp_path, "app") as again:
        assert (again / "part").exists()
    with pytest.raises(ConfigError, match="is not an empty folder"), restore_folder(folder, tmp_path, "app"):
        pass


def test_another_application_does_not_continue_there(tmp_path):
    folder = interrupted(tmp_path / "here", tmp_path)
    with pytest.raises(ConfigError, match="is not an empty folder"), restore_folder(folder, tmp_path, "other"):
        pass


def test_each_restore_without_a_folder_gets_one_of_its_own(tmp_path):
    names = []
    for _ in range(2):
        with restore_folder(None, tmp_path, "app") as folder:
            names.append(folder.name)
    assert names == ["restored-app-1", "restored-app-2"]


def test_a_folder_that_is_only_needed_meanwhile_goes(tmp_path):
    with restore_folder(None, tmp_path, "app", "verify", keep=False) as folder:
        pass
    assert not folder.exists()
    with restore_folder(tmp_path / "mine", tmp_path, "app", "verify", keep=False):
        pass
    assert (tmp_path / "mine").exists()


# --- `streams replica` waits while topics are missing or brokers are away, and says so once.

WARM = ReplicaPosition(CopiedTask(TaskPlace("app", "in", 0, 1, "hash"), ()), version=3, behind=0)


class Member:
    """A group member with one task."""

    def poll(self, timeout_s: float) -> Set[tuple[str, int]]:
        return {("app-in-commits", 0)}

    def commit(self, offsets: Any) -> None:
        pass


class Kept:
    """A replica whose looks at Kafka fail, until one does not."""

    trouble = ""

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
    _follow(Kept(*errors), Member(), 0.0, True, report, lambda: False, [])  # type: ignore[arg-type]


def test_a_replica_waits_while_a_rescale_makes_the_changelogs_anew(capsys: pytest.CaptureFixture[str]) -> None:
    missing = TopicNotFoundError("app-counts-changelog")
    follow(missing, missing)
    said = capsys.readouterr()
    assert said.out == "in task 0: step 3, up to date\n"
    assert said.err.startswith(
        "a topic of the application is missing, still trying: topic 'app-counts-changelog' does not"
    )
    assert said.err.count("\n") == 1


def test_prometheus_sees_how_far_the_copies_of_a_replica_are() -> None:
    (free_port,) = free_ports(1)
    latest: list[ReplicaPosition] = []
    with metrics_of(latest, "app", Address("127.0.0.1", free_port)):
        _follow(Kept(), Member(), 0.0, True, report, lambda: False, latest)  # type: ignore[arg-type]
        first = urlopen(f"http://127.0.0.1:{free_port}/metrics", timeout=30).read().decode()
        latest[:] = [replace(WARM, behind=None, fault="no disk")]
        then = urlopen(f"http://127.0.0.1:{free_port}/metrics", timeout=30).read().decode()
    series = '{app="app",sub_topology="in",task="0"}'
    assert f"streams_replica_behind_offsets{series} 0.0" in first
    assert f"streams_replica_commit{series} 3.0" in first
    assert f"streams_replica_fault{series} 0.0" in first
    # A copy that is not there yet is not behind by a number; a fault is shown.
    assert f"streams_replica_behind_offsets{series}" not in then
    assert f"streams_replica_fault{series} 1.0" in then


def test_a_replica_that_kafka_refuses_ends() -> None:
    with pytest.raises(KafkaClientError, match="refused"):
        follow(KafkaClientError("refused"))


def test_a_replica_ends_at_its_next_look_once_it_was_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    asked = iter([False, False, True])
    _follow(Kept(), Member(), 0.0, False, report, lambda: next(asked), [])  # type: ignore[arg-type]
    assert capsys.readouterr().out.count("up to date") == 2
