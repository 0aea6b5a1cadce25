"""One application that is killed again and again, once in each of its steps, in a single run: a sweep over crash points.

Its input comes in blocks, and each micro-batch takes one: so the n-th block is the step to version n of both tasks, and the
timestamp of a record tells which step has written it, whether it was committed or aborted.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from state.changelog import changelog_topic, commits_topic
from state.commit.crash_points import POINTS
from state.commit.marker import CommitMarker
from streams.drills.topics import read_aborted
from streams.topology.topology import Topology
from tests.spark import apps
from tests.spark.harness import Harness, Sent

KEYS = 12
PER_BLOCK = 2 * KEYS
_MS = 1_000
STRUCK = 1
"""The task that is killed."""
NEED_LOST_STATE = ("restore_halfway", "restore_read", "restore_done")
COMMITTED = POINTS[POINTS.index("after_commit") :]


class Sweep:
    """The application, its input, and what must come of it."""

    def __init__(self, harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # The version of a block is that of a micro-batch, and a repeated one says what it has decided.
        harness.micro_batches = True
        self.harness = harness
        self.happened = tmp_path / "happened"
        self._environment = monkeypatch
        self.source = harness.topic("source", 1)
        self.counts, self.sums = harness.topic("counts", 2), harness.topic("sums", 2)
        changelogs = [changelog_topic(harness.application_id, store) for store in ("counts", "sums")]
        self.topics = {"outputs": [self.counts, self.sums], "changelog": changelogs}
        self.blocks = 0

    def topology(self) -> Topology:
        """Two stores and two outputs, so that a half of them can be sent, restored or written."""
        return apps.counts_and_sums(self.source, self.counts, self.sums)

    def send(self, blocks: int) -> None:
        """Each key twice in each block, all at one time: so a micro-batch, which is cut by time, ends where a block ends."""
        for block in range(self.blocks + 1, self.blocks + blocks + 1):
            records = [Sent(b"key-%d" % (n % KEYS), b"%d" % block, _MS * block) for n in range(PER_BLOCK)]
            self.harness.send(self.source, records)
        self.blocks += blocks

    def run(self, faults: Sequence[str] = (), **settings: Any) -> None:
        """A micro-batch for each block, with these faults on the way; all of them must have happened."""
        self.happened.unlink(missing_ok=True)
        with self._environment.context() as environment:
            if faults:
                environment.setenv("STREAMS_FAULT", ",".join(faults))
                environment.setenv("STREAMS_FAULT_ONCE", str(self.happened))
            self.harness.run(self.topology(), tasks=2, max_records_per_trigger=PER_BLOCK, **settings)
        lines = self.happened.read_text().splitlines() if faults else []
        assert [line.partition(" ")[2] for line in lines] == [fault.removeprefix("freeze ") for fault in faults], (
            "not all faults of the drill have happened"
        )

    def delete_state(self) -> None:
        """The next step restores from the changelogs."""
        shutil.rmtree(self.harness.config().state_dir)

    def decisions(self) -> dict[int, str]:
        """What the struck task did at each version of the last run."""
        assert self.harness.progress is not None
        return self.harness.progress.decisions(STRUCK)

    def per_step(self, what: str) -> int:
        """How many outputs or changes of state the struck task writes in a step."""
        found = [one for topic in self.topics[what] for one in self.harness.read(topic) if one.partition == STRUCK]
        return len(found) // self.blocks

    def aborted(self) -> dict[int, Counter[str]]:
        """By version: how many results, changes of state and markers are in the logs without ever having been committed."""
        found: dict[int, Counter[str]] = {}
        for what, topics in self.topics.items():
            for topic in topics:
                for one in read_aborted(self.harness.servers, topic):
                    found.setdefault(one.timestamp // _MS, Counter())[what] += 1
        for one in read_aborted(self.harness.servers, commits_topic(self.harness.application_id, self.source)):
            version = CommitMarker.from_bytes(one.value or b"").version
            found.setdefault(version, Counter())["markers"] += 1
        return found

    def check(self) -> None:
        """Every update of every key once, in order, and versions without gaps."""
        every = [block for block in range(1, self.blocks + 1) for _ in range(PER_BLOCK // KEYS)]
        counts = list(range(1, len(every) + 1))
        sums = [sum(every[:n]) for n in counts]
        for topic, wanted, decode in (
            (self.counts, counts, lambda value: int.from_bytes(value, "big")),
            (self.sums, sums, int),
        ):
            found: dict[bytes | None, list[int]] = {}
            for one in self.harness.read(topic):
                found.setdefault(one.key, []).append(decode(one.value or b""))
            assert found == {b"key-%d" % n: wanted for n in range(KEYS)}
        markers = self.harness.read(commits_topic(self.harness.application_id, self.source))
        for task in range(2):
            found_versions = [CommitMarker.from_bytes(m.value or b"").version for m in markers if m.partition == task]
            assert found_versions == list(range(1, self.blocks + 1)), (task, found_versions)
