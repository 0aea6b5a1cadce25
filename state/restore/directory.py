"""The folders of local state: `<state_dir>/<application>/<sub-topology>/<task>/`, with the database in `db` next to scratch data.

Only the owner has access. All of local state can be deleted while nothing runs: it is restored from the changelogs.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from state.tables.files import check_owner

_LEVELS = 3
"""How far a task's folder is below the state directory."""


@dataclass(frozen=True, slots=True)
class TaskDirectory:
    """One task's folder."""

    application_id: str
    sub_topology: str
    task: int
    path: Path

    @property
    def size_bytes(self) -> int:
        """Total size of the folder's files. RocksDB deletes files at any time; a file that is gone has no size."""
        size = 0
        for file in self.path.rglob("*"):
            with suppress(FileNotFoundError):
                found = file.stat()
                size += found.st_size if stat.S_ISREG(found.st_mode) else 0
        return size

    def check_owners(self) -> None:
        """Refuses a task if another user owns its folder, or a folder between the state directory and it.

        Raises:
            ForeignFolderError: Another user owns one of them, or a link in its place.
        """
        for folder in (self.path, *self.path.parents[:_LEVELS]):
            check_owner(folder)

    def wipe(self) -> None:
        """Deletes the folder. No process may have it open."""
        # Renamed first: after a kill halfway, half a database must not have the name of a complete one.
        renamed = self.path.with_name(f"{self.path.name}.deleted")
        shutil.rmtree(renamed, ignore_errors=True)
        if self.path.exists():
            self.path.rename(renamed)
            shutil.rmtree(renamed)


class StateDirectory:
    """The folders below a state directory."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def task(self, application_id: str, sub_topology: str, task: int) -> TaskDirectory:
        """The folder of a task, whether or not it exists."""
        folder = self._application(application_id) / _one_name(sub_topology) / str(task)
        return TaskDirectory(application_id, sub_topology, task, folder)

    def tasks(self, application_id: str | None = None) -> Iterator[TaskDirectory]:
        """All existing folders of tasks, in order of their names."""
        folders = self.root.glob("*") if application_id is None else [self._application(application_id)]
        for path in sorted(path for folder in folders for path in folder.glob("*/*")):
            if path.is_dir() and path.name.isdigit():
                yield self.task(path.parent.parent.name, path.parent.name, int(path.name))

    def wipe(self, application_id: str) -> int:
        """Deletes all local state of an application and returns the number of tasks. The application must not be running.

        Raises:
            ValueError: The id is not the name of a folder.
        """
        folder = self._application(application_id)
        directories = list(self.tasks(application_id))
        for directory in directories:
            directory.wipe()
        shutil.rmtree(folder, ignore_errors=True)
        return len(directories)

    def _application(self, application_id: str) -> Path:
        return self.root / _one_name(application_id)


def _one_name(name: str) -> str:
    """Checks the name of a folder.

    Raises `ValueError` if a path with this name could lead to another folder or outside its parent.
    """
    if not name.strip(".") or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} names no folder of its own")
    return name
