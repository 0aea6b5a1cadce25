"""Decides which functions get copies of their arguments, because they might change them.

Values are shared wherever no function can notice: between the branches of a stream, between a filter and what follows it, between
the rows of a table and the records that look them up. When nodes are connected, the instructions of each function decide: a
function that only reads gets the shared values, and any other function gets copies.
"""

from __future__ import annotations

import builtins
import copy
import dis
import pickle
import re
import sys
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from logging import Logger
from operator import is_
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID
from weakref import WeakSet

from streams.model.expressions import Expression, JoinedFields, ValueFields
from streams.users_code import users_function

T = TypeVar("T")

# --- Copies.

UNCHANGING: Final = frozenset(
    (str, int, float, bool, bytes, type(None), complex, Decimal, Fraction, UUID, datetime, date, time, timedelta)
)
"""Types of values that cannot change."""

_PROTOCOL: Final = 5
_not_by_name: WeakSet[type] = WeakSet()
"""Types whose values cannot be pickled, because their classes cannot be imported; pickling them is not tried again."""


def itself(value: Any) -> Any:
    """Returns the value itself; takes the place of `snapshot` where the value is never changed."""
    return value


def snapshot(value: Any) -> Any:
    """Returns a value that does not change when `value` changes: `value` itself if it cannot change, otherwise a copy.

    A value that cannot be copied (an open file, a generator) is returned itself.
    """
    if type(value) in UNCHANGING:
        return value
    try:
        return _copied(value)
    except RecursionError:
        # It may contain itself.
        return _copied_object(value)


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in UNCHANGING:
        return value
    if kind is dict:
        return {key: one if type(one) in UNCHANGING else _copied(one) for key, one in value.items()}
    if kind is list:
        return [one if type(one) in UNCHANGING else _copied(one) for one in value]
    if isinstance(value, tuple) and not hasattr(value, "__dict__"):
        parts = [_copied(one) for one in value]
        if all(map(is_, value, parts)):
            return value
        if kind is tuple or hasattr(kind, "_make"):
            return tuple(parts) if kind is tuple else kind._make(parts)
    return value if isinstance(value, Enum) or _is_frozen(value) else _copied_object(value)


def _is_frozen(value: Any) -> bool:
    """Whether the value belongs to a frozen dataclass, and none of its fields can change."""
    names = _frozen_fields(cast("Hashable", type(value)))
    return names is not None and all(type(one) in UNCHANGING or _copied(one) is one for one in names(value))


@lru_cache(1000)
def _frozen_fields(kind: Hashable) -> Callable[[Any], Iterable[Any]] | None:
    """A function that returns the fields of a frozen dataclass's object; None for other classes."""
    rules = getattr(kind, "__dataclass_params__", None)
    if rules is None or not rules.frozen:
        return None
    names = [one.name for one in fields(cast("Any", kind))]
    return lambda value: [getattr(value, name, None) for name in names]


def _copied_object(value: Any) -> Any:
    kind = type(value)
    if kind not in _not_by_name:
        try:
            return pickle.loads(pickle.dumps(value, _PROTOCOL))
        except Exception:
            _not_by_name.add(kind)
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def all_unchanging(values: Iterable[Any]) -> bool:
    """Whether none of the values can change, judging by their types alone."""
    return UNCHANGING.issuperset(map(type, values))


def lending(function: Callable[..., T]) -> Callable[..., T]:
    """Wraps a function so that calls leave their arguments unchanged: it gets copies, unless it only reads."""
    return function if only_reads(function) else _Lending(function)


@dataclass(frozen=True, slots=True)
class _Lending(Generic[T]):
    function: Callable[..., T]

    def __call__(self, *arguments: Any) -> T:
        return self.function(*[one if type(one) in UNCHANGING else snapshot(one) for one in arguments])


# --- What a function does to its arguments.

_READS: Final = re.compile(
    "LOAD_|STORE_FAST|BUILD_|LIST_|MAP_ADD|SET_ADD|SET_UPDATE|DICT_|FORMAT_|CONVERT_|POP_|JUMP_|RETURN_|YIELD_|BINARY_|UNARY_|COMPARE_|"
    "CONTAINS_|IS_|TO_BOOL|GET_ITER|GET_LEN|FOR_ITER|END_|UNPACK_|MAKE_FUNCTION|MAKE_CELL|COPY|SWAP|ROT_|DUP_|PUSH_NULL|PRECALL|"
    "KW_NAMES|RESUME|NOP|CACHE|EXTENDED_ARG|NOT_TAKEN"
)
"""The beginnings of the names of instructions that change nothing but the function's own variables and its new objects."""
_BUILTINS: Final = """
    len str int float bool bytes round min max abs sum any all sorted isinstance range dict list tuple set frozenset enumerate zip
    reversed print repr hash ord chr divmod pow format
"""
_CALLED: Final = frozenset(_BUILTINS.split())
"""The builtins that a function may call: none of them changes its arguments."""
_READING: Final = """
    get items keys values lower upper strip lstrip rstrip split rsplit splitlines partition join startswith endswith encode decode
    casefold title capitalize zfill isdigit isalpha isnumeric removeprefix removesuffix find count index isoformat total_seconds
    timestamp strftime date weekday isoweekday fromisoformat fromtimestamp strptime floor ceil sqrt match search fullmatch
    findall group groups loads dumps from_bytes to_bytes hex union intersection
"""
_METHODS: Final = frozenset(_READING.split())
"""The methods that a function may call on any object: no known method of these names changes its object."""
_GLOBALS: Final = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES: Final = ("LOAD_METHOD", "LOAD_ATTR")
_CELLS: Final = ("LOAD_DEREF", "LOAD_CLASSDEREF")
_PURE: Final = frozenset(getattr(builtins, name) for name in _CALLED)
_OWNERS: Final = (*UNCHANGING, dict)
_EXPRESSIONS: Final = (Expression, ValueFields, JoinedFields)


def only_reads(function: Callable[..., Any]) -> bool:
    """Whether a function is known to leave its arguments unchanged, so that they need not be copied for it.

    This is known of expressions, and of functions whose instructions show it, such as `lambda left, right: {**left, "n":
    right["n"]}`. The result may still contain parts of the arguments. False means that it is not known.
    """
    users = users_function(function)
    if isinstance(users, _EXPRESSIONS):
        return True
    if isinstance(users, FunctionType):
        return _only_reads(users)
    return isinstance(users, type | BuiltinFunctionType) and users in _PURE


@lru_cache(1000)
def _only_reads(function: FunctionType) -> bool:
    return _reads(function.__code__, function, frozenset())


def _reads(code: CodeType, function: FunctionType, calling: frozenset[CodeType]) -> bool:
    """Whether the instructions only read.

    Args:
        code: The code of the function, or of a comprehension in it.
        function: The function, which gives the globals and the closure.
        calling: The codes of the callers, to recognise recursion.
    """
    if code in calling:
        return False  # it calls itself
    calling, steps = calling | {code}, list(dis.get_instructions(code))
    calls = [step for step in steps if step.opname.startswith("CALL")]
    # Each call instruction must match one name or comprehension that may be called. If code loads a function in another way, there
    # are more calls than names.
    following = [*steps[1:], None]
    called = [
        step
        for step, after in zip(steps, following, strict=True)
        if not (_is_plain(step, function) or _is_owner(step, after, function))
    ]
    called = called if calls else []
    if len(called) != len(calls) or not all(_may_be_called(step, code, function, calling) for step in called):
        return False
    return all(step in calls or (_READS.match(step.opname) and not _changes(step)) for step in steps)


def _changes(step: dis.Instruction) -> bool:
    """Whether the instruction is an operation such as `+=`, which changes a list."""
    return step.opname == "BINARY_OP" and step.argrepr.endswith("=")


def _is_plain(step: dis.Instruction, function: FunctionType) -> bool:
    """Whether an instruction loads nothing that could be called."""
    if step.opname == "MAKE_FUNCTION" or step.opname in _ATTRIBUTES:
        return False
    if step.opname in _GLOBALS:
        name = str(step.argval)
        return name in function.__globals__ and _is_data(function.__globals__[name])
    return step.opname not in _CELLS or _is_data(_cell(function, step.argval))


def _is_owner(step: dis.Instruction, after: dis.Instruction | None, function: FunctionType) -> bool:
    """Whether the instruction loads a type of unchanging values, whose attribute is read and may be called: `int.from_bytes`."""
    if step.opname not in _GLOBALS or after is None or after.opname not in _ATTRIBUTES:
        return False
    name = str(step.argval)
    return function.__globals__.get(name, getattr(builtins, name, None)) in _OWNERS


def _is_data(value: Any) -> bool:
    """Whether a value cannot be called, and contains nothing that can be called."""
    return (
        type(value) in UNCHANGING
        or (isinstance(value, ModuleType) and value.__name__.partition(".")[0] in sys.stdlib_module_names)
        or (type(value) in (set, frozenset, list, tuple) and all_unchanging(value))
    )


def _may_be_called(step: dis.Instruction, code: CodeType, function: FunctionType, calling: frozenset[CodeType]) -> bool:
    if step.opname == "MAKE_FUNCTION":
        return all(_reads(one, function, calling) for one in _codes_in(code))
    if step.opname in _ATTRIBUTES:
        return step.argval in _METHODS
    found = _cell(function, step.argval) if step.opname in _CELLS else function.__globals__.get(step.argval)
    if isinstance(found, FunctionType):
        return found.__closure__ is None and _reads(found.__code__, found, calling)
    return found is None and step.opname in _GLOBALS and step.argval in _CALLED


def _cell(function: FunctionType, name: str) -> Any:
    """The value of a closure's variable; the function itself if the variable has no value."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    try:
        return cells[name].cell_contents
    except (KeyError, ValueError):
        return function


def _codes_in(code: CodeType) -> list[CodeType]:
    """The code of the functions and comprehensions in a function."""
    return [one for one in code.co_consts if isinstance(one, CodeType)]


# --- Whether a function may return anything but new objects and parts of its arguments.


def may_share(function: Callable[..., Any]) -> bool:
    """Whether a function may return the same object in several calls: one from its module, its closure, or its own state.

    For example, `lambda value: value or DEFAULT` may. False means that each result is made by its call, or is a part of its
    arguments.
    """
    users = users_function(function)
    if isinstance(users, (*_EXPRESSIONS, type, BuiltinFunctionType)):
        return getattr(users, "__self__", None).__class__ not in (type(None), ModuleType)
    return not isinstance(users, FunctionType) or _may_share(users)


@lru_cache(1000)
def _may_share(function: FunctionType) -> bool:
    return _knows_objects(function, frozenset())


def _knows_objects(function: FunctionType, seen: frozenset[FunctionType]) -> bool:
    if function in seen:
        return False
    names = {name for code in _all_codes(function.__code__) for name in code.co_names}
    known = [function.__globals__[name] for name in names if name in function.__globals__]
    cells = [_cell(function, name) for name in function.__code__.co_freevars]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return any(_is_object(one, seen | {function}) for one in (*known, *cells, *defaults))


def _all_codes(code: CodeType) -> Iterable[CodeType]:
    yield code
    for one in _codes_in(code):
        yield from _all_codes(one)


def _is_object(value: Any, seen: frozenset[FunctionType]) -> bool:
    """Whether a value can change, or is a function that may return one that can."""
    if isinstance(value, FunctionType):
        return _knows_objects(value, seen)
    if isinstance(value, type | ModuleType | Enum | Logger) or type(value) in UNCHANGING:
        return False
    if isinstance(value, BuiltinFunctionType):
        return value.__self__ is not None and not isinstance(value.__self__, ModuleType)
    return not (type(value) in (tuple, frozenset) and all_unchanging(value))
