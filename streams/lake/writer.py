"""`LakeWriter`: writes one batch after the other to a table, each in one commit, and knows after each whether it was its own.

Delta skips a write silently if the table already has a commit with its `txnAppId` and an equal or higher `txnVersion`. So an own
commit that only seemed to fail is not repeated; and of two instances of an application, which both continue from commit n, one
writes n + 1 and the other one nothing. The writer therefore looks for its attempt in the table after each write.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from streams.errors import LakeConflictError
from streams.lake.commit import SinkCommit, SinkId
from streams.source.offsets import TopicOffsets

FrameT_contra = TypeVar("FrameT_contra", contravariant=True)

TRIES = 6
FIRST_PAUSE_S = 0.5


class WriteConflictError(Exception):
    """Another writer of the table was faster: Delta has refused the commit as a whole."""


class Table(Protocol[FrameT_contra]):
    """The table of a sink."""

    def write(self, frame: FrameT_contra, commit: SinkCommit) -> None:
        """Writes rows and the commit in one transaction, unless the table has a commit of that version or a higher one.

        Raises:
            WriteConflictError: Another writer was faster.
        """

    def newest_commit(self) -> SinkCommit | None:
        """The sink's newest commit in the table; None: there is none."""


class LakeWriter(Generic[FrameT_contra]):
    """Writes the batches of one run.

    Args:
        of: The sink.
        table: The table.
        at: The commit to continue behind.
        saved: Called with each commit once the table has it.
        pause: Waits for some seconds before another try.
        attempt_id: Makes the id of an attempt.
    """

    def __init__(
        self,
        of: SinkId,
        table: Table[FrameT_contra],
        at: SinkCommit,
        saved: Callable[[SinkCommit], object] = lambda commit: None,
        pause: Callable[[float], object] = time.sleep,
        attempt_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._of, self._table, self._saved, self._pause, self._attempt_id = of, table, saved, pause, attempt_id
        self.at = at

    def write(self, frame: FrameT_contra, end: TopicOffsets) -> None:
        """Writes the rows between the last commit's positions and these; without any, the table gets no commit.

        The first batch of a start ends where the table already is, unless rows wait.

        Raises:
            LakeConflictError: Another instance writes for the sink, or other writers were faster each time.
        """
        if end == self.at.position:
            return
        commit = SinkCommit(self.at.version + 1, end, self._attempt_id())
        for tried in range(TRIES):
            if tried:
                self._pause(FIRST_PAUSE_S * 2 ** (tried - 1))
            conflict = self._tried(frame, commit)
            if conflict is None:
                self.at = commit
                self._saved(commit)
                return
        raise LakeConflictError(
            f"{self._of}: other writers of the table were faster {TRIES} times in a row, the last time with: {conflict}. Nothing "
            f"is lost: the rows wait in the sink's internal topic. Start the application again once the others write less, or let "
            f"them write other partitions of the table."
        )

    def _tried(self, frame: FrameT_contra, commit: SinkCommit) -> WriteConflictError | None:
        """Tries once; returns the conflict if the table does not have the commit."""
        conflict: WriteConflictError | None = None
        try:
            self._table.write(frame, commit)
        except WriteConflictError as error:
            conflict = error
        except Exception:
            # A commit that fails for the client may have reached the table.
            if self._own(commit):
                return None
            raise
        if self._own(commit):
            return None
        if conflict is None:
            raise LakeConflictError(
                f"{self._of}: the table takes no commit with the version {commit.version} although its history does not show one, "
                f"so nothing was written. Its history may have been cut: begin anew with `streams reset` and a new table."
            )
        return conflict

    def _own(self, commit: SinkCommit) -> bool:
        """Whether the table has the commit. Raises `LakeConflictError` if it has another one of that version or a later one."""
        found = self._table.newest_commit()
        if found is None or found.position.topic_id != commit.position.topic_id or found.version < commit.version:
            return False
        if found == commit:
            return True
        raise LakeConflictError(
            f"{self._of}: another instance of the application has written commit {found.version} of this sink meanwhile, so this "
            f"one has written nothing and ends. Nothing is lost or doubled. Let only one instance run."
        )
