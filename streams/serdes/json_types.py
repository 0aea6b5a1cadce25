"""JSON of one type: pydantic reads dataclasses, TypedDicts, NamedTuples and pydantic models; msgspec reads Structs.

orjson writes all of them, so a type does not change the bytes of anything that orjson supports. Other values (a `Decimal`, a
`set`, a NamedTuple, a model) are written in a form that pydantic or msgspec can read.

Invariants: every value read has been checked against the type, field by field. Types are not resolved by name in the process that
reads: the validators are made in the program's process and pickled with the job, since only there can annotations such as
`"datetime"` of a class of the main module be resolved.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import typing
from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from functools import cache, partial, reduce
from operator import or_
from typing import Any, cast
from uuid import UUID

import orjson
import typing_extensions
from pydantic import BaseModel, PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaValidator, ValidationError, to_jsonable_python

from state.exact_json import write
from streams.errors import TopologyError
from streams.serdes.base import UNIONS, type_name
from streams.serdes.json_decimals import read_decimals
from streams.serdes.json_samples import lost
from streams.serdes.json_sure import check_of
from streams.serdes.json_text import JSON_OPTIONS, NotKept
from streams.serdes.read_back import Difference, difference, not_finite

_SHOWN_ERRORS = 3
_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class TypedJson:
    """Reads and writes values of one type.

    Attributes:
        loads: Parses a value from JSON text. Raises `ValueError` for another shape.
        check: Checks the shape of a value, for the message. Raises `ValueError` for another shape.
        sure: Returns whether a value is certainly read back as it is.
        options: The options of orjson that the type needs.
    """

    loads: Callable[[bytes], Any]
    check: Callable[[Any], Any]
    sure: Callable[[Any], bool]
    options: int = 0

    @classmethod
    def of(cls, kind: Any) -> TypedJson:
        """The object that reads and writes values of a type.

        Raises:
            TopologyError: `kind` is not a type, has a field that cannot be read from JSON, or values that are not read back as they
                were written.
        """
        if _has_structs(kind):
            # msgspec itself refuses types whose values it could not tell apart.
            return cls(partial(_read_struct, kind), partial(_check_struct, kind), _never)
        try:
            adapter = TypeAdapter(_readable(kind), _parent_depth=_depth_of_users_frame())
            if not adapter.pydantic_complete:
                adapter.rebuild(raise_errors=True)
            schema = _named_tuples_from_objects(adapter.core_schema)
        except (PydanticUserError, NameError, TypeError) as error:
            raise TopologyError(
                f"JsonSerde({type_name(kind)}) cannot be made: {_first_line(error)}. It takes a dataclass, TypedDict, NamedTuple, "
                f"pydantic model or msgspec Struct, or a type made of them such as list[Order]."
            ) from error
        validator = SchemaValidator(schema)
        # A pydantic model has its own configuration of strictness.
        strict = None if isinstance(kind, type) and issubclass(kind, BaseModel) else True
        read: Callable[[bytes], Any] = partial(validator.validate_json, strict=strict)
        if _has(schema, "decimal"):
            read = partial(read_decimals, read)
        made = cls(read, partial(validator.validate_python, strict=True), check_of(schema), _options(schema))
        why = lost(schema, made._text, read)
        if why is not None:
            raise TopologyError(f"JsonSerde({type_name(kind)}) cannot be made: {why}.")
        return made

    def dumps(self, value: Any, options: int = JSON_OPTIONS) -> bytes:
        """The value as JSON text, which is read back as the same value; but an int where a float is declared becomes a float.

        Raises:
            NotKept: The value would not be read back as it is; the text has the field and the reason.
            ValueError: The value has another shape.
            TypeError: JSON cannot represent the value.
        """
        return self._written(value, options, widened=True)

    def keep(self, value: Any) -> bytes:
        """The value as JSON text, which is read back as an equal value of the same types. Raises the errors of `dumps`."""
        return self._written(value, JSON_OPTIONS, widened=False)[:-1]

    def check_kept(self, value: Any) -> None:
        """Raises the errors that `keep` would raise. It writes the value only if its types alone do not decide."""
        if not self.sure(value):
            self.keep(value)

    def _written(self, value: Any, options: int, *, widened: bool) -> bytes:
        if self.sure(value):
            return self._text(value, options)
        self.check(value)
        data = self._text(value, options)
        try:
            back = self.loads(data)
        except ValueError as error:
            found = not_finite(value) or f"it could not be read back: {wrong_shape(error)}"
            raise NotKept(f"{found}. Make another value of it, or change the type of the field") from error
        why = difference(value, back, widened=widened)
        if why is not None:
            raise NotKept(f"{why}. {_cure(why)}")
        return data

    def _text(self, value: Any, options: int = JSON_OPTIONS) -> bytes:
        try:
            return orjson.dumps(value, default, options | self.options)
        except TypeError as error:
            if "64-bit" not in str(error):
                raise
            return write(value, default, options | self.options | orjson.OPT_PASSTHROUGH_DATACLASS)

    @staticmethod
    def explained(error: Exception) -> str:
        """The reason why a value has another shape."""
        return wrong_shape(error)


def _never(value: Any) -> bool:
    return False


def _cure(found: Difference) -> str:
    """The remedy for a value that is not read back: what to write instead."""
    there, back = type(found.value), type(found.back)
    if there is int and back is float:
        return f"Write float(...), or declare int | float: one step would have {found.value!r}, and the next one {found.back!r}"
    if found.back is not None and there is not back:
        return f"Make {type_name(back)} of it, or declare the field as {type_name(there)}"
    return "Make another value of it, or declare the field as a type that JSON reads back"


def _has(schema: Any, kind: str) -> bool:
    """Whether a schema has a part of this type."""
    if isinstance(schema, dict):
        return schema.get("type") == kind or any(_has(part, kind) for part in schema.values())
    return isinstance(schema, list | tuple) and any(_has(part, kind) for part in schema)


def _options(schema: Any) -> int:
    """The options that make orjson pass values to `default`: fields that begin with `_`, and times (it writes 0.01 s as 0.1 s)."""
    if isinstance(schema, list | tuple):
        return reduce(or_, map(_options, schema), 0)
    if not isinstance(schema, dict):
        return 0
    underscored = schema.get("type") == "dataclass-field" and schema["name"].startswith("_")
    own = orjson.OPT_PASSTHROUGH_DATACLASS if underscored else 0
    own |= orjson.OPT_PASSTHROUGH_DATETIME if schema.get("type") == "time" else 0
    return reduce(or_, map(_options, schema.values()), own)


def schema_of(kind: Any) -> dict[str, Any] | None:
    """The JSON Schema of the values that a type reads; None if functions of the type change the values first.

    Raises the errors of pydantic or msgspec for a type without a schema.
    """
    if _has_structs(kind):
        found: dict[str, Any] = _msgspec().json.schema(kind)
        return found
    schema = TypeAdapter(_readable(kind)).core_schema
    return None if _changes_input(schema) else GenerateJsonSchema().generate(_named_tuples_from_objects(schema))


def _changes_input(schema: Any) -> bool:
    """Whether a user's validator may accept values that the fields alone would not."""
    if isinstance(schema, list):
        return any(map(_changes_input, schema))
    if not isinstance(schema, dict):
        return False
    early = ("function-before", "function-wrap", "function-plain")
    return schema.get("type") in early or any(map(_changes_input, schema.values()))


def default(value: Any) -> Any:
    """A form that orjson can write, for a value of a type that it does not support. Raises `TypeError` if there is none."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, set | frozenset | deque):
        return list(value) if isinstance(value, deque) else _in_one_order(value)
    if _is_struct(type(value)):
        return _msgspec().to_builtins(value, order=_order_of(cast("Any", type(value))))
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return _text_or_list(value)


def _text_or_list(value: Any) -> Any:
    if isinstance(value, date | time):
        return value.isoformat()
    try:
        return to_jsonable_python(value)
    except ValueError as error:
        raise TypeError(str(error)) from error


_ORDERED = (str, int, float, bytes, date, Decimal, UUID)
"""Types whose values all have an order."""


def _in_one_order(values: Set[Any]) -> list[Any]:
    """The elements of a set in an order that depends only on the elements, so that equal sets have equal bytes."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= set(_ORDERED):
        return sorted(values)
    return sorted(values, key=lambda one: write(one, default, JSON_OPTIONS | orjson.OPT_PASSTHROUGH_DATACLASS))


def wrong_shape(error: Exception) -> str:
    """The mismatches, field by field: `amount: Input should be a valid number, not 'x'`."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False)
    parts = []
    for one in found[:_SHOWN_ERRORS]:
        place = ".".join(map(str, one["loc"]))
        value = one["input"]
        got = (
            f", not {value!r}"
            if isinstance(value, int | float | None) or (type(value) is str and len(value) < 40)
            else ""
        )
        parts.append((f"{place}: " if place else "") + one["msg"] + ("" if one["type"] in _NO_INPUT else got))
    more = len(found) - _SHOWN_ERRORS
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


_NO_INPUT = ("missing", "json_invalid")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _depth_of_users_frame() -> int:
    """The number of frames up to the user's function, whose local names the annotations of a local class may use."""
    depth = 1
    while str(sys._getframe(depth).f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
        depth += 1
    return depth + 1


def _readable(kind: Any) -> Any:
    """The type, with `typing.TypedDict` replaced by that of `typing_extensions`, which pydantic requires before Python 3.12.

    A TypedDict among the fields of another class cannot be replaced; the error says so.
    """
    if sys.version_info >= (3, 12):
        return kind
    if typing_extensions.is_typeddict(kind) and type(kind).__module__ == "typing":
        hints = typing.get_type_hints(kind, include_extras=True)
        needed = kind.__required_keys__
        fields = {
            name: (typing_extensions.Required if name in needed else typing_extensions.NotRequired)[
                _readable(_bare(hint))
            ]
            for name, hint in hints.items()
        }
        made: Any = typing_extensions.TypedDict
        return made(kind.__name__, fields)
    arguments, origin = typing.get_args(kind), typing.get_origin(kind)
    changed = tuple(_readable(argument) for argument in arguments)
    if changed == arguments:
        return kind
    return reduce(or_, changed) if origin in UNIONS else origin[changed]


def _bare(hint: Any) -> Any:
    """A field's type without `Required` or `NotRequired`."""
    marked = typing.get_origin(hint) in (typing_extensions.Required, typing_extensions.NotRequired)
    return typing.get_args(hint)[0] if marked else hint


def _named_tuples_from_objects(schema: Any) -> Any:
    """The schema, with NamedTuples read only from objects, whose unknown fields are ignored as for other types.

    By default, pydantic also reads NamedTuples from arrays, but rejects objects with unknown fields.
    """
    if isinstance(schema, list):
        return [_named_tuples_from_objects(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    known = {name: _named_tuples_from_objects(part) for name, part in schema.items()}
    if known.get("type") != "named-tuple":
        return known
    fields = {
        one["name"]: {
            "type": "typed-dict-field",
            "schema": one["schema"],
            "required": one["schema"]["type"] != "default",
        }
        for one in known["fields"]
    }
    made = {
        "type": "function-after",
        "function": {"type": "no-info", "function": partial(_named_tuple, known["cls"])},
        "schema": {"type": "typed-dict", "fields": fields},
    }
    is_one = {"type": "is-instance", "cls": known["cls"]}
    return {"type": "json-or-python", "json_schema": made, "python_schema": is_one, "ref": known.get("ref")}


def _named_tuple(kind: Callable[..., Any], fields: dict[str, Any]) -> Any:
    return kind(**fields)


def _msgspec() -> Any:
    """The library of Structs. Wherever a Struct is used, it is installed."""
    return importlib.import_module("msgspec")


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__struct_fields__")


def _has_structs(kind: Any) -> bool:
    return _is_struct(kind) or any(map(_has_structs, typing.get_args(kind)))


@cache
def _struct_decoder(kind: Any) -> Any:
    return _msgspec().json.Decoder(kind)


@cache
def _order_of(kind: Any) -> str | None:
    """The order in which msgspec writes a Struct's parts: sorted if there are sets, else None, so that dicts keep their order."""
    return "deterministic" if "uniqueItems" in str(_msgspec().json.schema(kind)) else None


def _read_struct(kind: Any, data: bytes) -> Any:
    return _struct_decoder(kind).decode(data)


def _check_struct(kind: Any, value: Any) -> None:
    _msgspec().convert(value, kind)
