"""JSON text of plain values: `loads` reads it, `dumps` writes values that leave, `keep` writes values that are read back.

Invariants: integers are exact, whatever their size; NaN and infinity are never written, because JSON has neither; and `loads` reads
the text that `keep` writes as an equal value of equal types, at every depth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from enum import Enum
from functools import lru_cache, partial
from itertools import chain
from math import isfinite
from types import NoneType
from typing import Any, Final
from uuid import UUID

import orjson

from state.exact_json import UNREADABLE, read, write
from streams.serdes.base import a_value, shown

# Keys of ints and the like become text, as in every JSON library; NumPy scalars come out of user code on data frames.
# orjson writes into 4 KiB, which its result then occupies for as long as it lives. Cutting off a newline copies the result into
# memory of its own size: a step of 100 000 records holds 12 MB instead of 400 MB, and saves 3 us a record of page faults.
JSON_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
_TEXT_KEYS: Final = (
    orjson.OPT_SERIALIZE_NUMPY
    | orjson.OPT_APPEND_NEWLINE
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
_dump_plain = partial(orjson.dumps, option=orjson.OPT_APPEND_NEWLINE)
_SCALARS: Final = frozenset((str, int, bool, NoneType))
_TEXT: Final = frozenset((str,))
_DICT: Final = frozenset((dict,))
_FLAT_KINDS: Final = _SCALARS | {float}
_KEPT_KINDS: Final = _FLAT_KINDS | {dict, list}
_MOST_LEVELS: Final = 20
"""Deeper values, and values that contain themselves, are checked one by one."""


class NotKept(ValueError):
    """A value that JSON would give back as something else. The text names the field and the alternative."""


def loads(data: bytes | str) -> Any:
    """Parses a value from its text, with every integer exact. Raises `ValueError` if the text is not JSON."""
    try:
        return read(data)
    except UNREADABLE as error:
        orjson.loads(data)  # raises, with the better text
        raise ValueError(str(error)) from error


def dumps(value: Any) -> bytes:
    """The text of a value that leaves. Values without a form in JSON are converted: dates, UUIDs, enums, tuples, dataclasses, keys.

    Raises:
        TypeError: The value, or a part of it, has no form in JSON.
        ValueError: A number is NaN or infinite.
    """
    try:
        data = orjson.dumps(value, _converted, _TEXT_KEYS)
    except TypeError:
        data = write(_with_text_keys(value), _converted, _TEXT_KEYS)
    if b"null" in data:
        check_finite(value)
    return data[:-1]


def dumps_all(values: Sequence[Any]) -> list[bytes | None]:
    """The text of each value, as `dumps` writes it; None for None."""
    try:
        texts = [None if value is None else text[:-1] for value, text in zip(values, map(_dump, values), strict=True)]
    except TypeError:
        return [None if value is None else dumps(value) for value in values]
    for value, text in zip(values, texts, strict=True):
        if text is not None and b"null" in text:
            check_finite(value)
    return texts


def keep(value: Any) -> bytes:
    """The text of a value that is read back.

    Raises:
        NotKept: The value would come back as another value or type.
        TypeError: A text is not Unicode, or the value is nested too deeply.
    """
    check_kept(value)
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)[:-1]
    except TypeError:
        return write(value, option=orjson.OPT_APPEND_NEWLINE)[:-1]


def check_kept(value: Any) -> None:
    """Raises `NotKept` unless the value comes back from its text as it is."""
    # Each aggregate of each record passes here.
    if type(value) not in _SCALARS and not _comes_back(value):
        raise NotKept(_why_not(value))


def _comes_back(value: Any) -> bool:
    """Whether a value consists only of types that JSON has. C functions look at all parts where possible, instead of a loop."""
    kind = type(value)
    if kind is dict:
        if not _TEXT.issuperset(map(type, value)):
            return False
        parts: Iterable[Any] = value.values()
    elif kind is list:
        parts = value
    else:
        return kind in _SCALARS or (kind is float and isfinite(value))
    if _SCALARS.issuperset(map(type, parts)):
        return True
    try:
        for part in parts:
            if type(part) is float:
                if not isfinite(part):
                    return False
            elif type(part) not in _SCALARS and not _comes_back(part):
                return False
    except RecursionError:
        raise NotKept("it is nested too deeply, or contains itself") from None
    return True


def keep_all(values: Sequence[Any]) -> list[bytes | None]:
    """The text of each value, as `keep` writes it; None for None. Checking the parts of all values together halves the cost.

    Raises:
        NotKept: One of them would come back as another value; `keep` finds out which, and why.
        TypeError: A text is not Unicode, a value is nested too deeply, or an integer has more than 64 bits.
    """
    if not _parts_come_back(values):
        raise NotKept
    texts = [None if value is None else text[:-1] for value, text in zip(values, map(_dump_plain, values), strict=True)]
    for value, text in zip(values, texts, strict=True):
        # What is not finite is written as null.
        if text is not None and b"null" in text:
            check_kept(value)
    return texts


def all_kept(values: Sequence[Any]) -> bool:
    """Whether `check_kept` accepts all of many values, for a third of the cost; False also if they are nested deeply."""
    return _parts_come_back(values, whole=True)


def _parts_come_back(values: Sequence[Any], whole: bool = False) -> bool:
    """Whether values consist only of types that JSON has. They are checked level by level: C functions see all parts of a level.

    Unless `whole`, keys and floats are left to orjson: it refuses keys that are not texts, and writes NaN as null.
    """
    level: Sequence[Any] = values
    for _ in range(_MOST_LEVELS):
        kinds = set(map(type, level))
        if not kinds <= _KEPT_KINDS:
            return False
        if whole and float in kinds and not all(map(isfinite, [part for part in level if type(part) is float])):
            return False
        if kinds <= _FLAT_KINDS:
            return True
        dicts = level if kinds == _DICT else [part for part in level if type(part) is dict]
        if whole and not _TEXT.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        inner = list(chain.from_iterable(map(dict.values, dicts)))
        if list in kinds:
            inner += chain.from_iterable([part for part in level if type(part) is list])
        level = inner
    return False


# --- Dicts whose keys are numbers, for aggregates without a known type (`JsonWithKeys`).
#
# `{404: 3}` is stored as `{"404":3}` and a blank character, which marks the type of the dict's keys. Blanks after a JSON text mean
# nothing, so other programs read text keys. If a value has several dicts, it has a blank for each, in the order in which their
# texts begin. A value whose keys are all texts has no blanks: it is stored as `keep` writes it.

_BLANKS: Final = {str: b" ", int: b"\t", bool: b"\n"}


def keep_with_keys(value: Any) -> bytes:
    """The text of a value that is read back, as from `keep`, but the keys of dicts may also be all int, or all bool."""
    if _comes_back(value):
        return write(value, option=orjson.OPT_APPEND_NEWLINE)[:-1]
    blanks: list[bytes] = []
    converted = _keys_as_text(value, blanks)
    if converted is value or b"".join(blanks).strip(b" ") == b"":
        check_kept(value)  # says what is wrong
    return keep(converted) + b"".join(blanks)


def check_with_keys(value: Any) -> None:
    """Raises `NotKept` if `keep_with_keys` would refuse the value."""
    if not _comes_back(value):
        keep_with_keys(value)


def loads_with_keys(data: bytes) -> Any:
    """Parses the text that `keep_with_keys` has written."""
    text = data.rstrip(b" \t\n")
    value = loads(text)
    if len(text) == len(data):
        return value
    kinds = {blank[0]: kind for kind, blank in _BLANKS.items()}
    return _with_kinds(value, iter([kinds[blank] for blank in data[len(text) :]]))


def _keys_as_text(value: Any, blanks: list[bytes]) -> Any:
    """The value with text keys. Adds, for each dict, the blank that stands for the type of its keys."""
    if type(value) is list:
        return [_keys_as_text(part, blanks) for part in value]
    if type(value) is not dict:
        return value
    kinds = set(map(type, value)) or {str}
    kind = kinds.pop()
    if kinds or kind not in _BLANKS:
        return value
    blanks.append(_BLANKS[kind])
    return {_key(key): _keys_as_text(part, blanks) for key, part in value.items()}


def _with_kinds(value: Any, kinds: Iterator[type]) -> Any:
    if type(value) is list:
        return [_with_kinds(part, kinds) for part in value]
    if type(value) is not dict:
        return value
    kind = next(kinds, str)
    keys = value if kind is str else map(int, value) if kind is int else (key == "true" for key in value)
    return {key: _with_kinds(part, kinds) for key, part in zip(keys, value.values(), strict=True)}


# --- What is wrong with a value that does not come back, for people.


def _why_not(value: Any) -> str:
    path, part, key = next(_faults(value, "", False))
    name = type(part).__name__
    where = f"in {path}, " if path else ""
    if key:
        back = "JSON has only texts as keys"
        return (
            f"{where}the key {shown(part)} is {a_value(part)}. {back}. Annotate the function that makes it (such as "
            f"-> dict[{name}, int]), or name a serde, such as JsonSerde(dict[{name}, int]), or make texts of the keys"
        )
    what = f"{where}{shown(part)} is {a_value(part)}"
    if isinstance(part, float) and not isfinite(part):
        return f"{what} that is not finite, and JSON has no such number: leave it out, or use None"
    if hasattr(part, "dtype"):
        return f"{what} of NumPy, which JSON would give back as a plain number or list: use .item() or .tolist()"
    if isinstance(part, str | int | float | dict | list) and not isinstance(part, Enum):
        plain = next(base for base in (str, int, float, dict, list) if isinstance(part, base))
        return f"{what}, which JSON would give back as {a_value(plain())}: use {plain.__name__}(...)"
    back = (
        f", which JSON would give back as {shown(_as_read(part))}"
        if _is_written(part)
        else ", which JSON does not have"
    )
    if part is not value:
        return (
            f"{what}{back}. Convert it, or annotate the function that makes the value with a type whose fields say what they are, "
            f"such as a dataclass (or name the serde of such a type: JsonSerde(Order))"
        )
    kind = f"tuple[{', '.join(type(one).__name__ for one in part)}]" if type(part) is tuple else name
    return f"{what}{back}. Convert it, or annotate the function that makes it (-> {kind}), or name a serde: JsonSerde({kind})"


def _faults(value: Any, path: str, key: bool) -> Iterator[tuple[str, Any, bool]]:
    """The parts of a value that do not come back, each as its path, the part, and whether it is a key."""
    if type(value) is dict:
        for name, part in value.items():
            if type(name) is not str:
                yield path, name, True
            yield from _faults(part, f"{path}[{shown(name)}]", False)
    elif type(value) is list:
        for at, part in enumerate(value):
            yield from _faults(part, f"{path}[{at}]", False)
    elif not _comes_back(value):
        yield path, value, key


def _is_written(part: Any) -> bool:
    """Whether `dumps` has a form for a part."""
    return isinstance(part, tuple | date | datetime | time | UUID | Enum) or dataclasses.is_dataclass(part)


def _as_read(part: Any) -> Any:
    """The value that a part would be read back as."""
    try:
        return loads(dumps(part))
    except Exception:
        return "something else"


# --- Values that orjson would write wrongly: NaN, fields that begin with `_`, times, and different keys with the same text.


def check_finite(value: Any) -> None:
    """Raises `ValueError` if a number within a value is NaN or infinite, which orjson would write as null."""
    kind = type(value)
    if isinstance(value, dict):
        parts: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value!r} is not a finite number, and JSON has no other: leave it out, or use None")
        return
    elif hasattr(value, "dtype"):
        return check_finite(value.tolist())
    elif dataclasses.is_dataclass(kind):
        parts = (getattr(value, name) for name in _names(kind))
    elif isinstance(value, Enum):
        parts = (value.value,)
    else:
        return None
    for part in parts:
        if type(part) not in _SCALARS:
            check_finite(part)
    return None


def _converted(value: Any) -> Any:
    """A form of a value that orjson writes correctly: it leaves out fields that begin with `_`, and writes 0.01 s as 0.1 s."""
    if type(value) in (datetime, date, time):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _names(type(value))}
    raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")


@lru_cache(1024)
def _names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in dataclasses.fields(kind))


def _with_text_keys(value: Any) -> Any:
    """The same value with text keys. A dict with two keys of the same text becomes a list of pairs, so nothing is lost."""
    if isinstance(value, dict):
        keys = list(map(_key, value))
        parts = list(map(_with_text_keys, value.values()))
        if len(set(keys)) < len(keys):
            return [[key, part] for key, part in zip(value, parts, strict=True)]
        return dict(zip(keys, parts, strict=True))
    if isinstance(value, list) or type(value) is tuple:
        return list(map(_with_text_keys, value))
    return _with_text_keys(_converted(value)) if dataclasses.is_dataclass(type(value)) else value


_dump = partial(orjson.dumps, default=_converted, option=_TEXT_KEYS)


def _key(key: Any) -> str:
    """A key as text in JSON."""
    if isinstance(key, str) and not isinstance(key, Enum):
        return str(key)
    if type(key) is int:
        return str(key)
    if isinstance(key, float) and not isfinite(key):
        raise ValueError(f"the key {key!r} is not a finite number, and JSON has no other")
    (text,) = orjson.loads(orjson.dumps({key: None}, option=JSON_OPTIONS))
    return str(text)
