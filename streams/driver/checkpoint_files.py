"""Checkpoint files on remote storage, through the Hadoop file systems that Spark itself uses."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from streams.checkpoint.files import CheckpointFiles, LocalFiles


def checkpoint_files(session: SparkSession, checkpoint_dir: str) -> CheckpointFiles:
    """Access to an application's checkpoint in Spark's storage, since a path without a scheme may belong to any file system."""
    path = _path(session, checkpoint_dir)
    if path.getFileSystem(_configuration(session)).getUri().getScheme() == "file":
        return LocalFiles(checkpoint_dir)
    return HadoopFiles(session, checkpoint_dir)


def checkpoint_of_query(checkpoint_dir: str, name: str) -> str:
    """The path of the checkpoint of one query; `CheckpointFiles` read it under the query's name."""
    return f"{checkpoint_dir.rstrip('/')}/{name}"


def qualified(session: SparkSession, path: str) -> str:
    """A path from the root, with the scheme of its file system, which Spark, Delta and other processes all read alike."""
    at = _path(session, path)
    return str(at.getFileSystem(_configuration(session)).makeQualified(at).toString())


class HadoopFiles:
    """Files of a Hadoop file system: HDFS, S3, Azure, Google.

    Args:
        session: The Spark session, whose settings name the file systems and contain their credentials.
    """

    def __init__(self, session: SparkSession, checkpoint_dir: str) -> None:
        self._session = session
        self._root = checkpoint_dir.rstrip("/")
        self._files = _path(session, self._root).getFileSystem(_configuration(session))

    def names(self, folder: str) -> list[str]:
        """Sorted names of a folder's entries; none if the folder does not exist."""
        path = self._at(folder)
        if not self._files.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(path))

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None if the file does not exist."""
        at = self._at(path)
        if not self._files.exists(at):
            return None
        stream = self._files.open(at)
        try:
            return bytes(_jvm(self._session).org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        """Writes a file as a whole: object stores show only complete files; elsewhere the finished file is renamed."""
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
        """Renames a file or a folder; the new path must not exist."""
        new = self._at(to)
        self._files.mkdirs(new.getParent())
        self._rename(self._at(path), new)

    def delete(self, folder: str) -> None:
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
