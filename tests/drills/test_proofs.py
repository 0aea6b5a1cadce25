"""What drills conclude from logs: which transactions were aborted, and which versions a task's steps have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from state.commit.marker import CommitMarker
from streams.drills import topics as reader
from streams.drills.subject import versions_of_steps
from streams.drills.topics import Read, read_aborted

FIRST = CommitMarker("q", 0, 1, "hash", 1, 0, "batch", {}, {}, 0, {}, {}, {}, {}, "", 0)


def test_a_record_that_is_committed_between_the_reads_does_not_count_as_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = [Read(0, 0, 0, b"k", b"committed"), Read(0, 1, 0, b"k", b"aborted")]

    def read(client: object, topic: str, isolation: str) -> list[Read]:
        found = [one for one in log if isolation == "read_uncommitted" or one.value != b"aborted"]
        log.append(Read(0, len(log), 0, b"k", b"committed meanwhile"))
        return found

    monkeypatch.setattr(reader, "_read", read)
    assert [one.value for one in read_aborted("servers", "topic")] == [b"aborted"]


def test_the_marker_of_an_adoption_is_no_step_of_its_own() -> None:
    second = replace(FIRST, version=2)
    adoption = replace(second, query_id="other", adopted=2)
    third = replace(adoption, version=3)
    assert versions_of_steps([FIRST, second, adoption, third]) == [1, 2, 3]
