"""Infers the type that a user's function returns, without calling the function.

The type is the one in the function's annotation. Without an annotation, as for a lambda, the bytecode shows it (`bytecode_types`):
the types of the fields that are read from a typed value, the classes that are called, and tuples and lists of them.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import typing_extensions

from streams.dsl.nodes.bytecode_types import Unknown, made_by, whole, with_any
from streams.dsl.nodes.computed_keys import makes_keys
from streams.errors import TopologyError
from streams.model.aggregates import Aggregate
from streams.model.expressions import (
    ALL,
    OF_RECORD,
    TIMESTAMP,
    Col,
    Expression,
    JoinedFields,
    OfRecord,
    Operation,
    ValueFields,
    col,
    results_of,
)
from streams.model.paths import dotted_name, first_and_rest, name_in_path, names_of
from streams.operators.processor import Processor
from streams.serdes.base import Serde, type_name
from streams.serdes.by_type import UNIONS, DefaultKeySerde, DerivedSerde, plain_type, serde_for
from streams.serdes.json import JsonSerde, JsonWithKeys, is_plain_json
from streams.serdes.keys import as_key
from streams.serdes.primitives import BooleanSerde, BytesSerde, Float64Serde, Int64Serde, StringSerde
from streams.wording import a_or_an, did_you_mean

Type: typing.TypeAlias = Any
"""A type as annotations have it; None: unknown."""

_TYPES: dict[type, Type] = {
    StringSerde: str,
    Int64Serde: int,
    Float64Serde: float,
    BooleanSerde: bool,
    BytesSerde: bytes,
}
_CASTS: dict[str, Type] = {"to_int": int, "to_float": float, "to_text": str, "to_decimal": Decimal}


def result_type(fn: Callable[..., Any], *serdes: Serde[Any] | None) -> Type:
    """The type that a function returns; None: unknown. Parts of it may be `Unknown`.

    `serdes` are the serdes of the key and of each value that `fn` may take.
    """
    if isinstance(fn, Expression):
        if isinstance(fn, OfRecord):
            return int if fn.path == TIMESTAMP else serde_type(serdes[0] if serdes else None)
        return _expression_type(fn, serdes[-1] if serdes else None)
    if isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, type):
        return fn
    called = fn if isinstance(fn, types.FunctionType | types.MethodType) else type(fn).__call__
    if isinstance(called, types.FunctionType) and "return" not in called.__annotations__:
        return made_by(called, [serde_type(serde) for serde in serdes], _field_type)
    try:
        return typing.get_type_hints(called).get("return")
    except Exception:  # an annotation may be anything; one that cannot be evaluated is ignored
        return None


def aggregate_type(initializer: Callable[..., Any], *aggregators: Callable[..., Any]) -> Type:
    """The type of an aggregate: the return type of the first function for which it is known, the initializer last.

    It is `KeyedDict` if the type is unknown or just `dict`, and a function computes keys of a dict.
    """
    kinds = [kind for fn in (*aggregators, initializer) if (kind := result_type(fn)) is not None]
    kind = next((kind for kind in kinds if whole(kind) is not None), kinds[0] if kinds else None)
    return KeyedDict if kind in (None, Any, dict, dict[Any, Any]) and any(map(makes_keys, aggregators)) else kind


class KeyedDict(dict[Any, Any]):
    """The type of an aggregate that may be a dict whose keys are not texts."""


def forwarded_types(supplier: Callable[[], Any]) -> tuple[Type, Type]:
    """The types of the keys and values that a processor forwards, from its class: `Processor[str, Order, int, Spend]`."""
    for base in getattr(supplier, "__orig_bases__", ()):
        arguments = typing.get_args(base)
        if typing.get_origin(base) is Processor and len(arguments) == 4:
            return arguments[2], arguments[3]
    return None, None


def element_type(kind: Type) -> Type:
    """The type of an iterable's elements."""
    arguments = typing.get_args(kind)
    return _known(arguments[0]) if len(arguments) == 1 else None


def list_of(kind: Type) -> Type:
    """The type of a list of `kind`."""
    lists = typing.cast("Any", list)
    return None if kind is None else lists[kind]


def pair_types(kind: Type) -> tuple[Type, Type]:
    """The types of a pair's two elements."""
    origin: Type = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    pair = origin is tuple and len(arguments) == 2 and arguments[1] is not ...
    return (_known(arguments[0]), _known(arguments[1])) if pair else (None, None)


def _known(kind: Type) -> Type:
    return None if kind is Unknown else kind


def serde_type(serde: Serde[Any] | None) -> Type:
    """The type of the values that a serde reads; None: unknown."""
    if isinstance(serde, DerivedSerde):
        serde = serde.inner
    if isinstance(serde, JsonWithKeys):
        return KeyedDict
    return serde.kind if isinstance(serde, JsonSerde) else _TYPES.get(type(serde))


def check_fields(reader: object, node: str, *serdes: Serde[Any] | None) -> None:
    """Raises `TopologyError` if an expression or `fields(...)` reads a field that the values of `node` are known not to have.

    `serdes` ends with the serde of the values, or for a joiner with the serdes of both sides; None: unknown.
    """
    if isinstance(reader, ValueFields) and len(serdes) > 1:
        reader = JoinedFields.of(reader)
    if isinstance(reader, JoinedFields):
        paths = [f"left.{name_in_path(name)}" for name in reader.left]
        paths += [f"right.{name_in_path(name)}" for name in reader.right]
        paths += [path for _, expression in reader.computed for path in expression.paths]
        sides = dict(zip(("left", "right"), serdes[-2:], strict=False))
        for path in paths:
            side, field = first_and_rest(path)
            if field:  # a whole value has no name
                check_path(f"{reader!r}", field, node, sides.get(side))
    elif isinstance(reader, Expression | ValueFields):
        of_fields = (
            (path for _, one in reader.computed for path in one.paths) if isinstance(reader, ValueFields) else ()
        )
        for path in reader.paths if isinstance(reader, Expression) else of_fields:
            check_path(f"{reader!r}", path, node, serdes[-1])


def check_path(reader: str, path: str, node: str, serde: Serde[Any] | None) -> None:
    """Raises `TopologyError` if the values of `node` are known not to have the field at `path`. The message names `reader`."""
    if path in OF_RECORD:
        return
    kind = serde_type(serde)
    parts = names_of(path)
    for at, name in enumerate(parts):
        names = _field_names(kind)
        if names is None or path == ALL or (name not in names and hasattr(kind, name)):
            return  # the type of a property is unknown
        if name not in names:
            raise TopologyError(
                f"{reader} reads the field {name!r}, which the values of '{node}' do not have: they are of the type "
                f"{type_name(kind)}.{dotted_name(parts[at:], names) or did_you_mean(name, names)}"
            )
        kind = _field_type(kind, name)


def check_aggregate(aggregate: Aggregate, node: str, serde: Serde[Any] | None) -> None:
    """Raises `TopologyError` if an aggregate reads a field that the values of `node` do not have, or that it cannot aggregate.

    `serde` is the serde of the values; None: unknown.
    """
    for path in aggregate.paths:
        check_path(aggregate.text, path, node, serde)
    if aggregate.takes_only is None or aggregate.field is None:
        return
    field = col(aggregate.field) if isinstance(aggregate.field, str) else aggregate.field
    truth = isinstance(field, Expression) and field.is_condition
    kind = bool if truth else _expression_type(field, serde)
    classes, what = aggregate.takes_only
    if kind is not None and _is_none_of(kind, classes):
        cure = (
            f"({field!r}).cast(int) is 1 or 0"
            if kind is bool
            else "convert it with map_values(...) or .cast(...) before"
        )
        raise TopologyError(
            f"{aggregate.text} {what}, but of the values of '{node}' it is given {a_or_an(type_name(kind))}: {cure}."
        )


def _is_none_of(kind: Type, classes: tuple[type, ...]) -> bool:
    """Whether a value of this type is never an object of these classes; `bool` does not count as a number."""
    kind = plain_type(kind)
    origin: Type = typing.get_origin(kind)
    if origin in UNIONS:
        return all(one is type(None) or _is_none_of(one, classes) for one in typing.get_args(kind))
    bare = kind if origin is None else origin
    if bare is bool or bare is Any:
        return bare is bool
    try:
        return isinstance(bare, type) and not any(issubclass(bare, one) or issubclass(one, bare) for one in classes)
    except TypeError:  # a protocol with attributes
        return False


def _field_names(kind: Type) -> set[str] | None:
    """All names by which fields of a type may be read; None: there may be others."""
    kind = plain_type(kind) if kind is not None else None
    if typing_extensions.is_typeddict(kind):
        return set(typing.get_type_hints(kind))
    if not isinstance(kind, type) or hasattr(kind, "__getattr__"):
        return None
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    if hasattr(kind, "__struct_fields__"):
        return {*kind.__struct_fields__, *getattr(kind, "__struct_encode_fields__", ())}
    model = getattr(kind, "model_fields", None)  # pydantic's
    if isinstance(model, dict) and getattr(kind, "model_config", {}).get("extra") != "allow":
        aliases = {
            alias for one in model.values() for alias in (one.alias, one.validation_alias, one.serialization_alias)
        }
        return {*model, *(alias for alias in aliases if isinstance(alias, str))}
    return None


def _expression_type(expression: Expression, value: Serde[Any] | None) -> Type:
    """The type of an expression that is a field of a typed value, a cast, or a `when` of these; None: unknown."""
    if isinstance(expression, Col):
        kind = serde_type(value)
        for name in names_of(expression.path):
            kind = _field_type(kind, name)
        return kind
    if isinstance(expression, Operation) and expression.name == "case":
        kinds = [_expression_type(one, value) for one in results_of(expression)]
        return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else None
    return _CASTS.get(expression.name) if isinstance(expression, Operation) else None


def _field_type(kind: Type, name: str) -> Type:
    kind = plain_type(kind) if kind is not None else None
    if not isinstance(kind, type):
        return None
    return _hints(kind).get(name)


def _hints(kind: Type) -> dict[str, Type]:
    """The types of a class's fields; empty if they cannot be evaluated."""
    try:
        return typing.get_type_hints(kind)
    except Exception:
        return {}


# --- Derives serdes for keys and values that a function makes, if the program names none.
#
# The defaults stay: keys are text, values are JSON. So everything that the defaults can write has the same bytes with and without
# an annotation. A type only matters for values that the defaults cannot write or read back: a number as key, a dataclass as value.

_NOT_READ_BACK = (Enum, date, time, timedelta, Decimal, UUID, tuple, set, frozenset, bytes)
"""Types that JSON cannot represent or reads back as text, besides classes with fields."""


def taken(candidates: tuple[Serde[Any] | None, ...], default: Serde[Any]) -> Serde[Any]:
    """The first named serde; else the first one derived from a type (`TopologyError` if that type has none); else the default."""
    known = [serde for serde in candidates if serde is not None]
    named = next((serde for serde in known if not isinstance(serde, DerivedSerde)), None)
    if named is not None:
        return named
    return next((serde.taken() for serde in known if isinstance(serde, DerivedSerde)), default)


def without_mark(serde: Serde[Any] | None) -> Serde[Any] | None:
    """The serde inside a `DerivedSerde`, or the serde itself; None if it is the default."""
    if not isinstance(serde, DerivedSerde):
        return serde
    return None if isinstance(serde.inner, DefaultKeySerde) else serde.inner


def derived_key(kind: Type, default: Serde[Any], made_by: str) -> Serde[Any] | None:
    """The serde for keys of a type that the operator `made_by` makes, if none is named; None: the program's own default."""
    if default != StringSerde():
        return None
    kind = dict if kind is KeyedDict else whole(kind)
    if _may_be_text(kind):
        bare = plain_type(kind)
        members = bare if isinstance(bare, type) and issubclass(bare, str) and issubclass(bare, Enum) else None
        return DerivedSerde(DefaultKeySerde(made_by, is_text=bare is str, member_of=members))
    try:
        return DerivedSerde(as_key(serde_for(kind)))
    except TopologyError as error:
        return DerivedSerde(
            None,
            f"'{made_by}' makes keys of type {type_name(kind)}, which no serde is known for. Name one where the key is used, with "
            f"key_serde=... in Grouped, Joined, StreamJoined, Repartitioned or Produced. ({error})",
        )


def derived_value(kind: Type, default: Serde[Any]) -> Serde[Any] | None:
    """The serde for values of a type if none is named; None: the builder's default."""
    if kind is KeyedDict and is_plain_json(default):
        return DerivedSerde(JsonWithKeys())
    if kind is None or not is_plain_json(default) or not _lost_in_json(kind := with_any(kind)):
        return None
    try:
        return DerivedSerde(serde_for(bytes) if plain_type(kind) is bytes else JsonSerde(kind))
    except TopologyError:
        return None


def _may_be_text(kind: Type) -> bool:
    """Whether a value of this type can be a `str`; true if the type is unknown."""
    kind = plain_type(kind) if kind is not None else Any
    if kind in (Any, type(None)) or isinstance(kind, typing.TypeVar | str):
        return True
    origin: Type = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is typing.Literal:
        return any(isinstance(one, str) for one in arguments)
    bare = kind if origin is None or origin in UNIONS else origin
    if not isinstance(bare, type):
        return any(map(_may_be_text, arguments))
    try:
        return issubclass(bare, str) or issubclass(str, bare)
    except TypeError:  # a protocol with attributes
        return True


def _lost_in_json(kind: Type) -> bool:
    """Whether JSON cannot write values of a type, or reads them back as another type."""
    kind = plain_type(kind)
    origin: Type = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is tuple or origin in (set, frozenset):
        return True
    if arguments and origin is not typing.Literal:
        named = isinstance(origin, type) and issubclass(origin, Mapping) and plain_type(arguments[0]) not in (str, Any)
        return named or any(map(_lost_in_json, arguments))
    if typing_extensions.is_typeddict(kind):
        return any(_lost_in_json(field) for field in _hints(kind).values())
    if not isinstance(kind, type):
        return False
    has_fields = dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__")
    # A class can only be a pydantic model if pydantic has been imported. It is not imported just for this check.
    models = sys.modules.get("pydantic")
    return has_fields or issubclass(kind, _NOT_READ_BACK) or (models is not None and issubclass(kind, models.BaseModel))
