"""Checkpoint files that are not on this machine's disk, through the Hadoop file systems that Spark itself uses."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from streams.checkpoint.files import CheckpointFiles, LocalFiles


def checkpoint_files(session: SparkSession, checkpoint_dir: str) -> CheckpointFiles:
    """Access to an application's checkpoint where Spark has it: a path without a scheme may be of another file system."""
    path = _path(session, checkpoint_dir)
    if path.getFileSystem(_configuration(session)).getUri().getScheme() == "file":
        return LocalFiles(checkpoint_dir)
    return HadoopFiles(session, checkpoint_dir)


class HadoopFiles:
    """Files of a Hadoop file system: HDFS, S3, Azure, Google.

    Args:
        session: Spark, whose settings name the file systems and hold their credentials.
        checkpoint_dir: The application's checkpoint.
    """

    def __init__(self, session: SparkSession, checkpoint_dir: str) -> None:
        self._session = session
        self._root = checkpoint_dir.rstrip("/")
        self._files = _path(session, self._root).getFileSystem(_configuration(session))

    def names(self, folder: str) -> list[str]:
        """Names of what lies in a folder, sorted; none if there is no folder."""
        path = self._at(folder)
        if not self._files.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(path))

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None if there is no file."""
        at = self._at(path)
        if not self._files.exists(at):
            return None
        stream = self._files.open(at)
        try:
            return bytes(_jvm(self._session).org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        """Writes a file; object stores show it once it is whole, elsewhere it is renamed when it is."""
        fresh, at = self._at(f"{path}.tmp"), self._at(path)
        stream = self._files.create(fresh, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        if self._files.exists(at):
            self._files.delete(at, False)
        self._rename(fresh, at)

    def move(self, path: str, to: str) -> None:
        """Renames a file or a folder; nothing lies at the new place."""
        new = self._at(to)
        self._files.mkdirs(new.getParent())
        self._rename(self._at(path), new)

    def delete(self, folder: str) -> None:
        """Deletes a folder with what is in it."""
        self._files.delete(self._at(folder), True)

    def _at(self, path: str) -> Any:
        return _path(self._session, f"{self._root}/{path}")

    def _rename(self, old: Any, new: Any) -> None:
        if not self._files.rename(old, new):
            raise OSError(f"{old.toString()} could not be renamed to {new.toString()}")


def _jvm(session: SparkSession) -> Any:
    return session.sparkContext._jvm


def _configuration(session: SparkSession) -> Any:
    return session.sparkContext._jsc.hadoopConfiguration()


def _path(session: SparkSession, path: str) -> Any:
    return _jvm(session).org.apache.hadoop.fs.Path(path)
