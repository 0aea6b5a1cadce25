"""Where local state lies: `<state_dir>/<application>/<sub-topology>/<task>/`, the database in `db`, scratch beside it.

Only its owner may look into it. Everything in it can be deleted at any time while nothing runs: it is restored from the changelogs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TaskDirectory:
    """One task's folder.

    Attributes:
        application_id: First level.
        sub_topology: Second level.
        task: Third level.
        path: The folder.
    """

    application_id: str
    sub_topology: str
    task: int
    path: Path

    @property
    def size_bytes(self) -> int:
        """Bytes of all files in it."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def wipe(self) -> None:
        """Deletes the folder. Nothing may have it open."""
        # Renamed first: a kill in the middle must not leave half a database under the name of a whole one.
        doomed = self.path.with_name(f"{self.path.name}.deleted")
        shutil.rmtree(doomed, ignore_errors=True)
        if self.path.exists():
            self.path.rename(doomed)
            shutil.rmtree(doomed)


class StateDirectory:
    """The folders below a state directory.

    Args:
        root: `state_dir` of the settings.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def task(self, application_id: str, sub_topology: str, task: int) -> TaskDirectory:
        """The folder of a task, whether it exists or not."""
        folder = self._application(application_id) / _one_name(sub_topology) / str(task)
        return TaskDirectory(application_id, sub_topology, task, folder)

    def tasks(self, application_id: str | None = None) -> Iterator[TaskDirectory]:
        """All folders of tasks that exist, in order of their names."""
        folders = self.root.glob("*") if application_id is None else [self._application(application_id)]
        for path in sorted(path for folder in folders for path in folder.glob("*/*")):
            if path.is_dir() and path.name.isdigit():
                yield self.task(path.parent.parent.name, path.parent.name, int(path.name))

    def wipe(self, application_id: str) -> int:
        """Deletes all local state of an application; gives the number of tasks. Nothing of it may run.

        Raises:
            ValueError: The id names no folder of its own.
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
    """Gives the name of a folder back. Raises `ValueError` if a path made with it could be another folder or none below it."""
    if not name.strip(".") or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} names no folder of its own")
    return name
