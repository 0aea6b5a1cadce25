"""`streams state` on a folder that another handle has open, as a running application does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from state.restore.directory import StateDirectory
from state.stores.codec import timestamped
from state.stores.dump import read_task_store
from state.stores.task_store import StorePosition, TaskStore, open_task_store
from streams.application.restore import stateful_subs
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
    assert result.output.strip().endswith("has the state of: shop.")


def test_a_table_in_a_pipe_is_as_wide_as_its_rows(streams, live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    text = streams("state", TARGET, "minutes", "-a", APPLICATION).output
    assert "1970-01-01T00:01:00.000Z  1970-01-01T00:02:00.000Z  1970-01-01T00:01:00.007Z  1" in text


def test_a_table_in_a_narrow_terminal_breaks_its_texts_and_loses_none(
    streams, live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert "…" not in streams("state", TARGET, "profiles", "-a", APPLICATION).output
