"""Errors of local state and its changelogs."""

from __future__ import annotations

import os

from state.errors.base import ErrorKind, StreamsError


class StateError(StreamsError):
    """Local state or its changelog cannot be used as it is."""


class ForeignFolderError(StateError):
    """A folder that is to hold private data belongs to another user, who could read or replace what is written there.

    Args:
        path: The folder.
        owner: The user id of its owner.
    """

    def __init__(self, path: str, owner: int) -> None:
        super().__init__(
            f"{path} belongs to the user with id {owner}, and this process runs as {os.getuid()}: its owner could read and replace "
            f"what is written there. Nothing was written; run as that user, or take another folder (base_dir, state_dir, "
            f"checkpoint_dir), one whose parent folders only you can write to"
        )
        self.path = path
        self.owner = owner


class StateLockedError(StateError):
    """Another process (or another handle in this one) has the store open.

    Args:
        path: Folder of the store.
        seconds: How long the wait was.
        detail: The database's message.
    """

    kind = ErrorKind.TRANSIENT

    def __init__(self, path: str, seconds: float, detail: str) -> None:
        super().__init__(
            f"the store in {path} is open elsewhere and was not released within {seconds:g} s: an older attempt of the "
            f"task that still ends, a second application with the same state_dir, or a stopped process. If it stays, "
            f"find the process with `fuser {path}/LOCK` and end it, or give each application its own state_dir [{detail}]"
        )
        self.path = path


class StateCorruptedError(StateError):
    """The local store is damaged. No data is lost: delete the store, and it is restored from its changelog.

    Args:
        path: Folder of the store.
        detail: The database's message.
    """

    kind = ErrorKind.DATA

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(
            f"the store in {path} cannot be used: {detail}. It is to be deleted and restored from its changelog (the engine "
            f"does so by itself); if it comes again, check the disk"
        )
        self.path = path
        self.detail = detail


class StateFormatError(StateCorruptedError):
    """Another version of the engine wrote the local store. No data is lost: delete the store, and it is restored.

    Args:
        path: Folder of the store.
        found: The store's format.
        known: The format that this version writes.
    """

    def __init__(self, path: str, found: object, known: int) -> None:
        super().__init__(path, f"it has format {found}, this version knows {known}")


class ChangelogMismatchError(StateError):
    """A changelog or commits topic exists, but with settings that cannot be used.

    Args:
        topic: The topic.
        found: What is wrong with it.
        remedy: What to do, with the command.
    """

    def __init__(self, topic: str, found: str, remedy: str) -> None:
        super().__init__(f"topic {topic!r}: {found}; {remedy}")
        self.topic = topic
        self.found = found
        self.remedy = remedy


class StepTooLargeError(StateError):
    """A column of one step has 2 GiB or more, which no column of bytes can hold. Nothing of the step is committed.

    Args:
        what: The rows or records that are too large.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} have 2 GiB or more in one step. Nothing of this attempt is committed. Start again with a smaller "
            f"max_records_per_trigger: as long as no task has committed this micro-batch, it is planned anew in smaller pieces"
        )


class RestoreError(StateError):
    """The changelog does not give the state that the commit marker promises, or records in it make no sense."""

    kind = ErrorKind.DATA


class SnapshotError(StateError):
    """A snapshot, or the location of snapshots, cannot be used. State is not lost: it is in the changelogs."""
