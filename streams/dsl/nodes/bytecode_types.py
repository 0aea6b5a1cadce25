"""Infers the type that a function without an annotation returns from its bytecode. The function is never called.

Every instruction is followed once, with a stack of types. An unknown type does not make the types around it unknown: `lambda key,
value: (key, Spend(value["user"]))` returns a pair whose second part is a `Spend`. Where branches meet, different types become a
union. The result is unknown if a loop changes the known type of a variable, or if the effect of an instruction is not defined here.
"""

from __future__ import annotations

import builtins
import copy
import dataclasses
import dis
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

import typing_extensions

Type: typing.TypeAlias = Any
"""A type as annotations have it; None: unknown."""


class Unknown:
    """The type of an unknown part of a tuple or list whose own type is known."""


class _Mark:
    """An entry of the stack that is not a value of a known type."""


_NULL, _NONE = _Mark(), _Mark()
_OF_ANY_LENGTH: Type = tuple[Unknown, ...]


@dataclass(frozen=True)
class _Named(_Mark):
    """An object that a name refers to: a class, a function, a module."""

    it: Any


@dataclass(frozen=True)
class _Gives(_Mark):
    """A function whose result has a known type."""

    kind: Type


@dataclass(frozen=True)
class _Code(_Mark):
    """The code of a function defined inside this one: a comprehension."""

    code: types.CodeType


@dataclass(eq=False)
class _Items(_Mark):
    """A list that is being filled."""

    kinds: list[Type] = field(default_factory=list)


_METHOD_FLAG = (3, 12)
"""From this version on, LOAD_ATTR also loads methods; its lowest bit is then set."""
_NULL_BEHIND = (3, 13)
"""From this version on, the null of a call lies above the callee on the stack."""
_NOTHING_HAPPENS = (
    *(
        "RESUME",
        "NOP",
        "CACHE",
        "PRECALL",
        "KW_NAMES",
        "COPY_FREE_VARS",
        "MAKE_CELL",
        "NOT_TAKEN",
        "EXTENDED_ARG",
        "GEN_START",
    ),
    *("SETUP_ANNOTATIONS", "DELETE_FAST", "GET_ITER", "TO_BOOL"),
)
_TAKEN_AND_LEFT = {
    **dict.fromkeys(
        ("COMPARE_OP", "IS_OP", "CONTAINS_OP", "FORMAT_WITH_SPEC", "SET_FUNCTION_ATTRIBUTE", "BINARY_OP"), (2, 1)
    ),
    **dict.fromkeys(("FORMAT_SIMPLE", "CONVERT_VALUE", "CALL_INTRINSIC_1"), (1, 1)),
    **dict.fromkeys(("POP_TOP", "STORE_DEREF", "STORE_GLOBAL", "POP_ITER"), (1, 0)),
    **dict.fromkeys(("DICT_UPDATE", "DICT_MERGE", "SET_UPDATE", "SET_ADD"), (1, 0)),
    "MAP_ADD": (2, 0),
    **dict.fromkeys(("LOAD_CLOSURE", "LOAD_SMALL_INT", "RETURN_GENERATOR"), (0, 1)),
    "BINARY_SLICE": (3, 1),
    "STORE_SUBSCR": (3, 0),
    "STORE_ATTR": (2, 0),
    "DELETE_SUBSCR": (2, 0),
}
_COUNTED = {"BUILD_STRING": 1, "BUILD_SET": 1, "BUILD_SLICE": 1, "BUILD_MAP": 2}
"""The number of values that an instruction pops for each unit of its argument; it pushes one value."""


def made_by(fn: types.FunctionType, known: Sequence[Type], field_type: Callable[[Type, str], Type]) -> Type:
    """The type of a function's result; parts of it may be `Unknown`.

    Args:
        fn: The function.
        known: The types of the key and of each value that it may take; a function with fewer arguments takes the last ones.
        field_type: Returns the type of a field of a type.
    """
    code = fn.__code__
    named: dict[str, Type] = {}
    if 1 <= code.co_argcount <= len(known) and not code.co_kwonlyargcount:
        named = dict(zip(code.co_varnames, known[-code.co_argcount :], strict=False))
    return _type_of(_Reading(fn, code, named, field_type).result())


def whole(kind: Type) -> Type:
    """The type if all of its parts are known; otherwise None."""
    return None if _has_unknown(kind) else kind


def with_any(kind: Type) -> Type:
    """The type, with `Any` for its unknown parts."""
    if kind is Unknown:
        return Any
    if not _has_unknown(kind):
        return kind
    origin: Any = typing.get_origin(kind)
    return origin[tuple(map(with_any, typing.get_args(kind)))]


def _has_unknown(kind: Type) -> bool:
    return kind is Unknown or any(map(_has_unknown, typing.get_args(kind)))


class _UnknownEffect(Exception):
    """Raised for an instruction whose effect is not known."""


_State: typing.TypeAlias = "tuple[list[Any], dict[str, Any]]"
"""The stack, and the known types of the variables."""


class _Reading:
    """Follows the bytecode of one function."""

    def __init__(
        self,
        fn: types.FunctionType,
        code: types.CodeType,
        named: dict[str, Type],
        field_type: Callable[[Type, str], Type],
    ) -> None:
        self._fn = fn
        self._code = code
        self._field_type = field_type
        self._stack: list[Any] = []
        self._named = {name: kind for name, kind in named.items() if kind is not None}
        self._waiting: dict[int, _State] = {}
        self._seen: dict[int, _State] = {}
        self._results: list[Any] = []
        self._yields = bool(code.co_flags & inspect.CO_GENERATOR)

    def result(self) -> Any:
        """The type of the result; None: unknown."""
        if self._code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            return None
        reached = True
        try:
            for step in dis.get_instructions(self._code):
                reached = self._arrive(step.offset, reached) and self._follow(step)
        except (_UnknownEffect, IndexError):
            return None
        merged = reduce(_merged, self._results) if self._results else None
        return _Gives(Iterable[_part(merged)]).kind if self._yields else merged  # type: ignore[misc]

    def _arrive(self, offset: int, reached: bool) -> bool:
        """Merges the branches that lead to an instruction. Returns whether there are any."""
        waiting = self._waiting.pop(offset, None)
        if waiting is not None:
            if reached:
                self._stack, self._named = _met((self._stack, self._named), waiting)
            else:
                self._stack, self._named = waiting
        if reached or waiting is not None:
            self._seen[offset] = (list(self._stack), dict(self._named))
            return True
        return False

    def _jump(self, target: int, stack: list[Any]) -> None:
        state = (list(stack), dict(self._named))
        if target in self._seen:  # back to the head of a loop
            if _met(self._seen[target], state) != self._seen[target]:
                raise _UnknownEffect
        else:
            self._waiting[target] = _met(self._waiting[target], state) if target in self._waiting else state

    def _pop_values(self, count: int) -> list[Any]:
        if count > len(self._stack):
            raise _UnknownEffect
        taken = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return taken

    def _follow(self, step: dis.Instruction) -> bool:
        """Applies the effect of an instruction. Returns whether the next instruction may follow it."""
        name = step.opname
        if name in ("RETURN_VALUE", "RETURN_CONST"):
            self._results += (
                [] if self._yields else [_constant(step.argval) if name == "RETURN_CONST" else self._pop_values(1)[0]]
            )
            return False
        if name in ("RAISE_VARARGS", "RERAISE"):
            return False
        if name == "YIELD_VALUE":
            self._results += self._pop_values(1)
            self._stack.append(None)
        elif "JUMP" in name:
            return self._follow_jump(step)
        elif name == "FOR_ITER":
            left = self._stack[:-1] if sys.version_info < (3, 12) else [*self._stack, None]
            self._jump(step.argval, left)
            self._stack.append(None)
        elif name == "END_FOR":
            self._pop_values(2 if sys.version_info < (3, 13) else 1)
        elif name not in _NOTHING_HAPPENS:
            self._follow_value(step)
        return True

    def _follow_jump(self, step: dis.Instruction) -> bool:
        name = step.opname
        if name.endswith("_OR_POP"):
            self._jump(step.argval, self._stack)
            self._pop_values(1)
            return True
        goes_on = name.startswith("POP_JUMP")
        if goes_on:
            self._pop_values(1)
        self._jump(step.argval, self._stack)
        return goes_on

    def _follow_value(self, step: dis.Instruction) -> None:
        name, arg = step.opname, step.arg or 0
        if name.startswith(("LOAD_", "STORE_FAST", "PUSH_NULL")) and name not in _TAKEN_AND_LEFT:
            self._follow_name(step)
        elif name.startswith(("CALL_FUNCTION", "CALL_METHOD", "CALL_KW")) or name == "CALL":
            self._follow_call(name, arg)
        elif name in ("BUILD_TUPLE", "BUILD_LIST"):
            parts = self._pop_values(arg)
            self._stack.append(_tuple_of(parts) if name == "BUILD_TUPLE" else _Items(parts))
        elif name in ("LIST_APPEND", "LIST_EXTEND"):
            (part,) = self._pop_values(1)
            items = self._stack[-arg]
            if isinstance(items, _Items):
                items.kinds.append(part if name == "LIST_APPEND" else None)
        elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and step.argrepr == "[]"):
            of, index = self._pop_values(2)
            self._stack.append(self._entry(of, index))
        elif name == "MAKE_FUNCTION":
            flags = bin(arg).count("1") if sys.version_info < (3, 13) else 0
            made = self._pop_values(flags + (2 if sys.version_info < (3, 11) else 1))
            self._stack.append(next((one for one in made if isinstance(one, _Code)), None))
        elif name == "LIST_TO_TUPLE" or (name == "CALL_INTRINSIC_1" and "LIST_TO_TUPLE" in step.argrepr):
            self._pop_values(1)
            self._stack.append(_OF_ANY_LENGTH)
        elif name in ("SWAP", "COPY", "DUP_TOP", "ROT_TWO", "ROT_THREE"):
            self._reorder(name, arg)
        else:
            taken, left = _effect(step)
            self._pop_values(taken)
            self._stack += [None] * left

    def _reorder(self, name: str, arg: int) -> None:
        stack = self._stack
        if name == "SWAP":
            stack[-1], stack[-arg] = stack[-arg], stack[-1]
        elif name in ("COPY", "DUP_TOP"):
            stack.append(stack[-(arg or 1)])
        else:
            stack.insert(-1 if name == "ROT_TWO" else -2, stack.pop())

    def _follow_name(self, step: dis.Instruction) -> None:
        name = step.opname
        if name == "PUSH_NULL":
            self._stack.append(_NULL)
        elif name == "LOAD_CONST":
            self._stack.append(_constant(step.argval))
        elif name in ("LOAD_GLOBAL", "LOAD_DEREF"):
            found = _Named(it) if (it := self._object(name, step.argval)) is not None else None
            null = name == "LOAD_GLOBAL" and sys.version_info >= (3, 11) and (step.arg or 0) & 1
            pair = [found, _NULL] if sys.version_info >= _NULL_BEHIND else [_NULL, found]
            self._stack += pair if null else [found]
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            of = self._pop_values(1)[0]
            method = name == "LOAD_METHOD" or (sys.version_info >= _METHOD_FLAG and (step.arg or 0) & 1)
            self._stack += [self._method(of, step.argval), _NULL] if method else [self._attribute(of, step.argval)]
        else:
            self._follow_variables(name, step.argval if isinstance(step.argval, tuple) else (step.argval,))

    def _follow_variables(self, name: str, variables: Sequence[str]) -> None:
        stores = name.count("STORE_FAST")
        if name.startswith("STORE_FAST"):
            for variable, kind in zip(variables[:stores], reversed(self._pop_values(stores)), strict=True):
                self._named.pop(variable, None)
                if kind is not None:
                    self._named[variable] = kind
        elif not name.startswith("LOAD_FAST"):
            raise _UnknownEffect
        self._stack += [self._named.get(variable) for variable in variables[stores:]]
        if name == "LOAD_FAST_AND_CLEAR":
            self._named.pop(variables[0], None)

    def _object(self, load: str, name: str) -> Any:
        """The object that a global or enclosed name refers to; None if it has no value yet."""
        if load == "LOAD_GLOBAL":
            return self._fn.__globals__.get(name, getattr(builtins, name, None))
        cell = dict(zip(self._fn.__code__.co_freevars, self._fn.__closure__ or (), strict=False)).get(name)
        try:
            return None if cell is None else cell.cell_contents
        except ValueError:
            return None

    def _attribute(self, of: Any, name: str) -> Any:
        if isinstance(of, _Named):
            found = _static(of.it, name)
            return None if found is None else _Named(found)
        if isinstance(of, _Mark) or of is None:
            return None
        kind = self._field_type(of, name)
        return self._method(of, name) if kind is None else kind

    def _method(self, of: Any, name: str) -> Any:
        """A method of a type, for a call on one of its objects."""
        if isinstance(of, _Named):
            return self._attribute(of, name)
        if isinstance(of, _Mark) or not isinstance(of, type):
            return None
        if name in ("_replace", "model_copy"):
            return _Gives(of)
        found = inspect.getattr_static(of, name, None)
        return _Named(found) if isinstance(found, types.FunctionType) else None

    def _entry(self, of: Any, index: Any) -> Any:
        if typing_extensions.is_typeddict(of) and typing.get_origin(index) is typing.Literal:
            return self._field_type(of, typing.get_args(index)[0])
        return None

    def _follow_call(self, name: str, arg: int) -> None:
        if name == "CALL_FUNCTION_EX":
            self._pop_values(1 + (arg & 1))
            args: list[Any] = []
        else:
            if name in ("CALL_FUNCTION_KW", "CALL_KW"):
                self._pop_values(1)
            args = self._pop_values(arg)
        called = self._pop_values(1 if sys.version_info < (3, 11) and name != "CALL_METHOD" else 2)
        # A comprehension is called with its iterator in the place of `self`.
        marks = called[:1] if isinstance(called[0], _Code) else [one for one in called if one is not _NULL]
        self._stack.append(self._result_of(marks[0], args) if len(marks) == 1 else None)

    def _result_of(self, called: Any, args: list[Any]) -> Any:
        if isinstance(called, _Gives):
            return called.kind
        if isinstance(called, _Code):
            return _Reading(self._fn, called.code, {}, self._field_type).result()
        if not isinstance(called, _Named):
            return None
        if called.it in (dataclasses.replace, copy.copy, copy.deepcopy):
            return args[0] if args and isinstance(args[0], type) else None
        if isinstance(called.it, type):
            return None if called.it is type else called.it
        return annotated_result(called.it)


def annotated_result(fn: Any) -> Type:
    """The return type in a function's annotation; None if there is none, or it depends on the arguments."""
    if not isinstance(fn, types.FunctionType | types.MethodType):
        return None
    try:
        kind = typing.get_type_hints(fn).get("return")
    except Exception:  # an annotation may be anything; one that cannot be evaluated is ignored
        return None
    parameters: tuple[Any, ...] = getattr(kind, "__parameters__", ())
    depends = kind is typing_extensions.Self or isinstance(kind, typing.TypeVar) or bool(parameters)
    return None if depends else kind


def _effect(step: dis.Instruction) -> tuple[int, int]:
    """The number of values that an instruction pops, and the number of values of unknown type that it pushes."""
    name, arg = step.opname, step.arg or 0
    counts = {
        **_TAKEN_AND_LEFT,
        **{built: (each * arg, 1) for built, each in _COUNTED.items()},
        "BUILD_CONST_KEY_MAP": (arg + 1, 1),
        "UNPACK_SEQUENCE": (1, arg),
        "FORMAT_VALUE": (2 if arg & 4 else 1, 1),
    }
    if name in counts:
        return counts[name]
    if name.startswith("UNARY_"):
        return 1, 1
    if name.startswith(("BINARY_", "INPLACE_")):
        return 2, 1
    raise _UnknownEffect


def _static(of: Any, name: str) -> Any:
    """An attribute of a module or a class, found without running any code."""
    if isinstance(of, types.ModuleType):
        return vars(of).get(name)
    found = inspect.getattr_static(of, name, None) if isinstance(of, type) else None
    return (
        found.__func__ if isinstance(found, classmethod | staticmethod) else found if isinstance(found, type) else None
    )


def _constant(value: object) -> Any:
    if value is None:
        return _NONE
    if isinstance(value, types.CodeType):
        return _Code(value)
    if isinstance(value, str):
        return typing.Literal[value]
    return _tuple_of(list(map(_constant, value))) if isinstance(value, tuple) else None


def _tuple_of(parts: list[Any]) -> Type:
    of_parts: Any = tuple
    return of_parts[tuple(map(_part, parts))] if parts else _OF_ANY_LENGTH


def _part(kind: Any) -> Type:
    known = _type_of(kind)
    return Unknown if known is None else known


def _type_of(entry: Any) -> Type:
    """The type of an entry of the stack; None: unknown."""
    if isinstance(entry, _Items):
        return list[_part(reduce(_merged, entry.kinds))] if entry.kinds else None  # type: ignore[misc]
    return None if isinstance(entry, _Mark) else entry


def _met(one: _State, other: _State) -> _State:
    """The state where two branches meet."""
    if len(one[0]) != len(other[0]):
        raise _UnknownEffect
    stack = [_merged(mine, theirs) for mine, theirs in zip(one[0], other[0], strict=True)]
    names = one[1].keys() & other[1].keys()
    return stack, {name: _merged(one[1][name], other[1][name]) for name in names}


def _merged(one: Any, other: Any) -> Any:
    """The type of a value that comes from either of two branches."""
    if one is other or (not isinstance(one, _Items) and one == other):
        return one
    if one is _NONE or other is _NONE:
        known = _type_of(other if one is _NONE else one)
        plain = isinstance(known, type) and typing.get_origin(known) is None
        return reduce(or_, (known, type(None))) if plain else known
    one, other = _type_of(one), _type_of(other)
    if typing.get_origin(one) is tuple and typing.get_origin(other) is tuple:
        mine, theirs = typing.get_args(one), typing.get_args(other)
        alike = len(mine) == len(theirs) and (mine[-1] is ...) == (theirs[-1] is ...)
        return _tuple_of(list(map(_merged, mine, theirs))) if alike else _OF_ANY_LENGTH
    known = one is not None and other is not None and Unknown not in (one, other)
    texts = [kind for kind in (one, other) if typing.get_origin(kind) is typing.Literal]
    if len(texts) == 2:
        return str
    return reduce(or_, (one, other)) if known and not texts else None
