"""Serialisation of values between the head and the tasks, and of jobs together with the classes of the program.

A value is pickled with references to its classes, which both sides import. A class that the other side cannot import (one defined
in the script itself, in a notebook or in a function) is sent with the job, by value (cloudpickle), and is then referenced by an id
that it gets while the job is serialised. So values do not become larger, and have the same class as in the job's functions on both
sides: `isinstance` works. An object without an importable name, such as a closure or a class made while records are processed, is
sent by value with each record.

Only bytes written by this application's readers are ever deserialised: they come through Spark's shuffle, never from Kafka.
"""

from __future__ import annotations

import io
import pickle
import sys
import uuid
from types import CodeType
from typing import Any, Final

import cloudpickle

from streams.errors import RecordError, TopologyError, ValueNotPicklableError
from streams.serdes.json_text import loads

_PROTOCOL = 5
PICKLED: Final = 0x80
"""The first byte of what `dump_value` writes; no JSON begins with it."""

_classes: dict[str, type] = {}
"""Id -> class that a job brought into this process, or took along from it."""
_ids: dict[type, str] = {}
_need_ids: set[type] = set()
"""Types of values that plain pickling could not write; it is not tried again for them."""


def dump_value(value: Any) -> bytes:
    """Serialises a value.

    Raises:
        RecordError: The value is nested too deeply.
        ValueNotPicklableError: The value, or an object in it, cannot be pickled.
    """
    kind = type(value)
    if kind not in _need_ids:
        try:
            return pickle.dumps(value, _PROTOCOL)
        except RecursionError as error:
            raise _too_deep(value) from error
        except Exception:
            _need_ids.add(kind) if kind in _ids else None
    data = io.BytesIO()
    try:
        _ValuePickler(data, _PROTOCOL).dump(value)
    except Exception as error:
        if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
            raise _too_deep(value) from error
        raise ValueNotPicklableError(
            f"a value of type {kind.__qualname__} cannot be handed on: {type(error).__name__}: {error}"
        ) from error
    return data.getvalue()


def load_value(data: bytes) -> Any:
    """Restores a value from the bytes of `dump_value`."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise ValueNotPicklableError(
            f"a value that was handed on cannot be made again: {type(error).__name__}: {error}"
        ) from error


def load_written(data: bytes) -> Any:
    """Restores a value that was written as JSON, or by `dump_value` if JSON cannot express it."""
    return load_value(data) if data[0] == PICKLED else loads(data)


def dump_job(job: Any) -> bytes:
    """Serialises a job with the functions of a program.

    Objects that cannot be imported are sent by value, and classes get an id.
    """
    data = io.BytesIO()
    pickler = _JobPickler(data, _PROTOCOL)
    # The classes are collected while the job is serialised, so they are written after it.
    try:
        pickler.dump((job, pickler.classes))
    except Exception as error:
        raise TopologyError(
            f"the topology cannot be sent to Spark's Python processes: {type(error).__name__}: {error}. A function of it, or what "
            f"it refers to, holds something that cannot be pickled (an open file, a connection, a lock): make that where it is used"
        ) from error
    return data.getvalue()


def load_job(data: bytes) -> Any:
    """Restores a job from the bytes of `dump_job`. From then on, values of its classes can be written and read."""
    job, classes = cloudpickle.loads(data)
    for name, one in classes.items():
        _know(name, one)
    return job


def _know(name: str, one: type) -> None:
    _classes[name] = one
    _ids[one] = name


def _class_of(name: str) -> type:
    return _classes[name]


def _too_deep(value: Any) -> RecordError:
    return RecordError(f"a value of type {type(value).__qualname__} is nested too deeply to be passed on")


def _can_be_imported(kind: type) -> bool:
    """Whether other processes can import a class by its name. `__main__` is another module there."""
    found: Any = None if kind.__module__ == "__main__" else sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is kind


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Keeps the file names in code that is sent by value, so that error messages show the user's line."""

    def reducer_override(self, obj: Any) -> Any:
        """Is called for all but plain values.

        From version 3.1.3 on, cloudpickle replaces a code object's file name; this undoes it.
        """
        if isinstance(obj, CodeType):
            kind, arguments = self.dispatch_table[CodeType](obj)
            return kind, tuple(obj.co_filename if one == "<dynamic-code>" else one for one in arguments)
        return super().reducer_override(obj)


class _JobPickler(_Pickler):
    """Assigns an id to each class that it writes by value."""

    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.classes: dict[str, type] = {}

    def reducer_override(self, obj: Any) -> Any:
        """Collects classes; each one is seen once."""
        if isinstance(obj, type) and not _can_be_imported(obj):
            name = _ids.get(obj) or uuid.uuid4().hex
            _know(name, obj)
            self.classes[name] = obj
        return super().reducer_override(obj)


class _ValuePickler(_Pickler):
    """Writes a class that the job has brought along as its id, and other objects as cloudpickle does."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and (name := _ids.get(obj)) is not None:
            return _class_of, (name,)
        return super().reducer_override(obj)
