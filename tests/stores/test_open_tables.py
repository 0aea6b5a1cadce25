"""Databases that stay open between steps: who has one, who gets it, and what deleted folders and kills do to it."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from state.errors import StateCorruptedError, StateLockedError
from state.tables import rocks_common
from state.tables.open_tables import OpenTables, open_table
from state.tables.rocks_common import RocksSettings

QUICK, PATIENT = RocksSettings(lock_timeout_s=0.2), RocksSettings(lock_timeout_s=120)
OWNER = """
import sys
from pathlib import Path
from state.tables.open_tables import open_tables
from state.tables.rocks_common import RocksSettings

path, tables = Path(sys.argv[1]), open_tables()
table = tables.take(path, RocksSettings())
table.write([(b"from", b"the owner")])
print("in use")
sys.stdin.readline()
tables.give_back(path, table)
print("given back")
sys.stdin.readline()
"""
PLAYER = """
import sys
from pathlib import Path
from tests.stores.test_open_tables import Player

player, end = Player(Path(sys.argv[1]), seed=2), Path(sys.argv[2])
while not end.exists():
    player.step()
print(player.steps)
"""


class Player:
    """One of two processes that pass a database to and fro, as workers do with tasks, but as fast as they can."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.random, self.tables = path, random.Random(seed), OpenTables()
        self.steps = self.log_files_gone = 0
        rocks_common._FIRST_RETRY_S = rocks_common._LAST_RETRY_S = 0.0005
        in_use = rocks_common._in_use

        def counted(location: str, text: str) -> bool:
            self.log_files_gone += "No such file" in text
            return in_use(location, text)

        rocks_common._in_use = counted

    def step(self) -> None:
        table = self.tables.take(self.path, PATIENT)
        count = int(table.get(b"count") or 0) + 1
        rows = [(b"%06d" % self.random.randrange(10**5), self.random.randbytes(60)) for _ in range(100)]
        table.write([(b"count", b"%d" % count), *rows])
        self.tables.give_back(self.path, table)
        self.steps += 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "task" / "db"


class Owner:
    """Another process, which uses and then keeps a database."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", OWNER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "in use\n"

    def give_back(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "given back\n"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_database_stays_open_from_use_to_use(path: Path) -> None:
    tables = OpenTables()
    table = tables.take(path, QUICK)
    table.write([(b"a", b"1")])
    tables.give_back(path, table)
    again = tables.take(path, QUICK)
    assert again is table
    assert again.get(b"a") == b"1"
    tables.close(path, again)


def test_a_second_user_in_the_same_process_is_locked_out(path: Path) -> None:
    tables = OpenTables()
    table = tables.take(path, QUICK)
    with pytest.raises(StateLockedError):
        tables.take(path, QUICK)
    tables.give_back(path, table)
    table = tables.take(path, QUICK)
    with pytest.raises(StateLockedError):
        tables.take(path, QUICK)
    tables.close(path, table)
    tables.close(path, tables.take(path, QUICK))


def test_another_process_gets_a_database_that_is_only_kept(path: Path) -> None:
    owner = Owner(path)
    try:
        owner.give_back()
        table = open_table(path, PATIENT)
        assert table.get(b"from") == b"the owner"
        table.close()
        assert owner.process.poll() is None
    finally:
        owner.end()


def test_another_process_gets_a_database_at_the_end_of_its_use(path: Path) -> None:
    owner = Owner(path)
    try:
        with pytest.raises(StateLockedError):
            open_table(path, QUICK)
        owner.give_back()
        open_table(path, PATIENT).close()
    finally:
        owner.end()


@pytest.mark.slow
def test_a_database_is_passed_to_and_fro_without_ever_looking_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_FIRST_RETRY_S", "_LAST_RETRY_S", "_in_use"):
        monkeypatch.setattr(rocks_common, name, getattr(rocks_common, name))
    player, end = Player(path, seed=1), path.with_name("end")
    command = [sys.executable, "-c", PLAYER, str(path), str(end)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            # As long as this process has not looked for a log file of RocksDB's that the other one had just deleted.
            while player.log_files_gone < 2:
                player.step()
        finally:
            end.touch()
        others = int(other.communicate()[0])
    assert others > 0
    table = player.tables.take(path, PATIENT)
    assert table.get(b"count") == b"%d" % (player.steps + others)
    player.tables.close(path, table)


def test_a_log_file_that_is_gone_is_no_damage_but_a_table_file_is() -> None:
    def opens(missing: str) -> str:
        left = [RuntimeError(f"IO error: No such file or directory: while unlink() file: {missing}: No such file")]

        def attempt() -> str:
            if left:
                raise left.pop()
            return "opened"

        return rocks_common.open_when_released("/state/LOG/db", 1, attempt)

    assert opens("/state/LOG/db/LOG.old.1795559785938689") == "opened"
    with pytest.raises(StateCorruptedError):
        opens("/state/LOG/db/000131.sst")


def test_a_killed_owner_leaves_nothing_in_the_way(path: Path) -> None:
    owner = Owner(path)
    owner.give_back()
    owner.process.send_signal(signal.SIGKILL)
    owner.end()
    tables = OpenTables()
    table = tables.take(path, PATIENT)
    assert table.get(b"from") == b"the owner"
    tables.give_back(path, table)
    tables.close(path, tables.take(path, PATIENT))


def test_a_folder_that_was_deleted_meanwhile_is_opened_anew(path: Path) -> None:
    tables = OpenTables()
    table = tables.take(path, QUICK)
    table.write([(b"a", b"1")])
    tables.give_back(path, table)
    shutil.rmtree(path.parent)
    fresh = tables.take(path, QUICK)
    assert fresh.get(b"a") is None
    fresh.write([(b"b", b"2")])
    tables.give_back(path, fresh)
    assert tables.take(path, QUICK) is fresh
    tables.close(path, fresh)


def test_after_a_failure_a_database_is_opened_anew(path: Path) -> None:
    tables = OpenTables()
    table = tables.take(path, QUICK)
    tables.give_back(path, table)
    table = tables.take(path, QUICK)
    tables.close(path, table)
    again = tables.take(path, QUICK)
    assert again is not table
    tables.close(path, again)


def test_nothing_lies_in_the_folder_of_a_database_that_is_kept(path: Path) -> None:
    tables = OpenTables()
    tables.give_back(path, tables.take(path, QUICK))
    assert [found.name for found in path.parent.iterdir()] == ["db"]
    assert all(found.is_file() for found in path.iterdir())
    tables.close(path, tables.take(path, QUICK))


def test_an_unused_database_is_closed_after_a_while(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks_common, "request_release", lambda path: None)
    tables = OpenTables(idle_s=0.05)
    tables.give_back(path, tables.take(path, QUICK))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            open_table(path, QUICK).close()
            return
        except StateLockedError:
            continue
    pytest.fail("the database is still open")
