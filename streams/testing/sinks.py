"""`check_sink` checks that a sink has each row exactly once, whenever and whichever process is killed.

The checks use only the sink and a function that reads its rows. Kills are real: a separate process writes, and gets SIGKILL.
"""

from __future__ import annotations

import copy
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import IO, Any

import cloudpickle
import pyarrow as pa

from streams.errors import LakeConflictError
from streams.sinks.sink import Sink, SinkTable

SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64()), ("text", pa.string())])
KEYS = ("key",)
_Row = tuple[Any, ...]
_LONGEST_S = 60.0
_WRITERS = """
import contextlib, os, sys, traceback
import cloudpickle

while size := sys.stdin.buffer.readline():
    work = sys.stdin.buffer.read(int(size))
    with contextlib.suppress(Exception):
        cloudpickle.loads(work)  # for its imports
    if not (pid := os.fork()):
        print(os.getpid(), flush=True)
        try:
            cloudpickle.loads(work)()
        except BaseException:
            print(traceback.format_exc(), flush=True)
        os._exit(1)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""A process that forks each writer: it has imported what writers need, which takes more CPU than what they write."""


def check_sink(
    make: Callable[[str], Sink],
    read: Callable[[str], Iterable[Mapping[str, Any]]],
    *,
    keys: bool = True,
    kills: int = 3,
    seed: int = 0,
) -> None:
    """Checks the contract of `streams.sinks.Sink`.

    Args:
        make: `make(name)` makes a sink that writes a table (a folder, ...) of that name, which does not exist yet. Sinks must be
            picklable by cloudpickle, since other processes write, too.
        read: `read(name)` returns the rows that readers of the table see now, with the columns `key`, `number` and `text`; no rows
            if it does not exist.
        keys: Whether the sink updates and deletes rows by key; else it only appends them.
        kills: How many times a process that writes batches is killed at a random moment.
        seed: Decides the random choices, which the message of an error includes.

    Raises:
        AssertionError: The sink breaks the contract; the message has the check, the rows found, and the rows expected.
    """
    with closing(_Writers()) as writers:
        for by_key in (False, True) if keys else (False,):
            for check in (_writes, _discards, _dies, _fences, _forgets_nothing_at_random, _survives_kills):
                name = f"{check.__name__.strip('_')}_{'upsert' if by_key else 'append'}"
                check(_Checked(name, make, read, KEYS if by_key else (), random.Random(seed), kills, writers))


class _Checked:
    """A sink under check, and the rows that it should have."""

    def __init__(
        self,
        name: str,
        make: Callable[[str], Sink],
        read: Callable[[str], Iterable[Mapping[str, Any]]],
        keys: tuple[str, ...],
        random: random.Random,
        kills: int,
        writers: _Writers,
    ) -> None:
        self.name, self._read, self.keys, self.random, self.kills = name, read, keys, random, kills
        self.writers = writers
        self.sink, self.table = make(name), SinkTable(f"check-sink/{name}", SCHEMA, keys)
        self.rows: list[_Row] = []
        self.position: str | None = None

    def opened(self) -> Sink:
        """Opens another copy of the sink, and checks that it is at the last commit."""
        sink = copy.copy(self.sink)
        found = sink.open(self.table)
        self.require(found == self.position, f"open() returned the position {found!r}, not {self.position!r}")
        return sink

    def committed(self, batch: _Batch) -> None:
        """Notes a batch as committed."""
        self.rows, self.position = batch.added_to(self.rows), batch.position

    def looks_right(self, when: str) -> None:
        found = sorted(map(_row, self._read(self.name)), key=repr)
        wanted = sorted(self.rows, key=repr)
        self.require(found == wanted, f"{when}: the rows are {found}, not {wanted}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise AssertionError(f"{type(self.sink).__name__}, check {self.name}: {what}")

    def batch(self, number: int) -> _Batch:
        """The batch with this number, which is the same at each call."""
        return _Batch.of(number, bool(self.keys))


class _Batch:
    """A batch: rows, and the keys that it deletes."""

    def __init__(self, number: int, rows: Sequence[_Row], deleted: Sequence[str], keys: bool) -> None:
        self.position, self._rows, self._deleted, self._keys = f'{{"batch": {number}}}', rows, deleted, keys

    @classmethod
    def of(cls, number: int, keys: bool) -> _Batch:
        numbers = random.Random(number)
        chosen = numbers.sample(range(8), 5)
        rows = [(f"k{key}", number, numbers.choice([None, "", "it's", "ü\n"])) for key in chosen[: 3 if keys else 5]]
        return cls(number, rows, [f"k{key}" for key in chosen[3:]] if keys else [], keys)

    def write(self, sink: Sink) -> None:
        deleted = pa.table({"key": pa.array(self._deleted, pa.string())}) if self._keys else pa.table({})
        sink.write(
            pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in self._rows], SCHEMA), deleted
        )

    def added_to(self, rows: list[_Row]) -> list[_Row]:
        if not self._keys:
            return [*rows, *self._rows]
        gone = {*self._deleted, *(row[0] for row in self._rows)}
        return [*(row for row in rows if row[0] not in gone), *self._rows]


def _row(row: Mapping[str, Any]) -> _Row:
    return tuple(row[name] for name in SCHEMA.names)


def _writes(checked: _Checked) -> None:
    """Checks that batches are visible once they are committed, also to writers that open the sink later."""
    sink = checked.opened()
    for number in range(3):
        batch = checked.batch(number)
        batch.write(sink)
        checked.looks_right(f"batch {number} is written and not committed")
        sink.commit(batch.position, checked.position)
        checked.committed(batch)
        checked.looks_right(f"batch {number} is committed")
    sink.close()
    sink.close()
    checked.opened().close()
    checked.looks_right("the sink was closed and opened")


def _discards(checked: _Checked) -> None:
    """Checks that rows written without a commit are never visible, and that their batch can be written again."""
    for number in range(3):
        sink, batch = checked.opened(), checked.batch(number)
        batch.write(sink)
        sink.close()
        checked.looks_right(f"batch {number} was written, and the sink closed")
        sink = checked.opened()
        batch.write(sink)
        sink.commit(batch.position, checked.position)
        checked.committed(batch)
        sink.close()
        checked.looks_right(f"batch {number} was written again")


def _dies(checked: _Checked) -> None:
    """Checks a process that dies between write and commit, and one that dies right after a commit."""
    for number in range(2):
        batch, after = checked.batch(number), checked.position
        checked.writers.kill(_Writing(checked, batch, commits=False))
        checked.looks_right(f"the writer of batch {number} died before the commit")
        checked.opened().close()
        checked.looks_right(f"the sink was opened after the writer of batch {number} had died before the commit")
        checked.position = after
        checked.writers.kill(_Writing(checked, batch, commits=True))
        checked.committed(batch)
        checked.opened().close()
        checked.looks_right(f"the writer of batch {number} died after the commit")


def _fences(checked: _Checked) -> None:
    """Checks that of two writers that continue from the same position, only one can commit, now and later."""
    for number in range(2):
        zombie, sink, batch = checked.opened(), checked.opened(), checked.batch(number)
        batch.write(sink)
        sink.commit(batch.position, checked.position)
        before = checked.position
        checked.committed(batch)
        try:
            checked.batch(number + 10).write(zombie)
            zombie.commit(f"{batch.position} of the zombie", before)
        except LakeConflictError:
            pass
        else:
            checked.require(False, "a writer committed after a position that another writer had already passed")
        zombie.close()
        sink.close()
        checked.looks_right("a second writer has failed")
        checked.opened().close()


def _forgets_nothing_at_random(checked: _Checked) -> None:
    """Checks a random history of commits, closed writers and abandoned writers."""
    sink, number, left = checked.opened(), 0, []
    for _ in range(20):
        batch, chance = checked.batch(number), checked.random.random()
        if chance < 0.2:
            batch.write(sink)
        if chance < 0.4:
            sink.close()
            sink = checked.opened()
            continue
        if chance < 0.5:
            left.append(sink)  # neither closed nor used again: it has written nothing since its last commit
            sink = checked.opened()
        batch.write(sink)
        sink.commit(batch.position, checked.position)
        checked.committed(batch)
        number += 1
        checked.looks_right(f"after {number} commits at random")
    for one in [*left, sink]:
        one.close()
    checked.looks_right("all writers are closed")


def _survives_kills(checked: _Checked) -> None:
    """Checks a process that writes and commits batches, and is killed at any moment."""
    number = 0
    for _ in range(checked.kills):
        # Long enough for some batches, so that many kills come within one.
        checked.writers.kill(
            _Writing(checked, None, commits=True, first=number), after_s=checked.random.uniform(0.0, 0.5)
        )
        sink = copy.copy(checked.sink)
        found = sink.open(checked.table)
        sink.close()
        while checked.position != found:
            checked.require(number < 100_000, f"open() returned the position {found!r}, which no writer has committed")
            checked.committed(checked.batch(number))
            number += 1
        checked.looks_right(f"a writer was killed, and the position is after batch {number - 1}")


class _Writing:
    """The work of the separate process: it writes a batch, or one after the other, and then waits for its end."""

    def __init__(self, checked: _Checked, batch: _Batch | None, commits: bool, first: int = 0) -> None:
        self._sink, self._table, self._after = checked.sink, checked.table, checked.position
        self._batch, self._commits, self._number = batch, commits, first

    def __call__(self) -> None:
        sink, after = copy.copy(self._sink), self._after
        sink.open(self._table)
        if self._batch is None:
            print("begins", flush=True)
        while True:
            batch = self._batch or _Batch.of(self._number, bool(self._table.keys))
            batch.write(sink)
            if self._commits:
                sink.commit(batch.position, after)
            after, self._number = batch.position, self._number + 1
            if self._batch is not None:
                print("done", flush=True)
                time.sleep(_LONGEST_S)


class _Writers:
    """Processes that write and are killed; their parent starts with the first and ends with `close`."""

    def __init__(self) -> None:
        self._parent: subprocess.Popen[bytes] | None = None

    def kill(self, work: _Writing, after_s: float = 0.0) -> None:
        """Runs the work in a process, and kills the process this many seconds after its first message."""
        # By value, because the process would otherwise import all of `streams.testing`, for a second of CPU.
        this = sys.modules[__name__]
        cloudpickle.register_pickle_by_value(this)
        dumped = cloudpickle.dumps(work)
        cloudpickle.unregister_pickle_by_value(this)
        asked, said = self._pipes()
        asked.write(b"%d\n%b" % (len(dumped), dumped))
        asked.flush()
        pid, lines = int(said.readline()), [said.readline()]
        if not lines[0].startswith(b"ended "):
            time.sleep(after_s)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while lines[-1] and not lines[-1].startswith(b"ended "):
            lines.append(said.readline())
        if lines[-1] != b"ended %d\n" % -signal.SIGKILL:
            wrong = b"".join(lines[:-1]).decode().strip()
            raise AssertionError(f"the process that writes ended by itself: {wrong[-2000:]}")

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._parent is None:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
            command = [sys.executable, "-c", _WRITERS]
            self._parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        return self._parent.stdin, self._parent.stdout

    def close(self) -> None:
        if self._parent is not None:
            with self._parent:
                self._parent.kill()
