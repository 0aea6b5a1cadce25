"""The cases' reducers (R), aggregators (A) and joiners (J), by name. None of them changes what it is given."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.functions import as_text, find, is_number, number, plain_key, predicate, split_spec
from tests.conformance.json_values import same

Combine = Callable[[Any, Any], Any]


def _without_null_if(spec: Any, what: str) -> tuple[Any, Callable[[Any], Any]]:
    """The specification without ``null_if``, and what that does to a result."""
    name, parameters = split_spec(spec, what)
    condition = parameters.pop("null_if", None)
    bare = {"fn": name, **parameters}
    if condition is None:
        return bare, lambda result: result
    holds = predicate(condition)
    return bare, lambda result: None if holds(None, result) else result


def _better(choose: Callable[[Any, Any], Any]) -> Combine:
    """min or max; what is no number is passed over."""

    def combine(aggregate: Any, value: Any) -> Any:
        if not is_number(value):
            return aggregate
        return choose(aggregate, value) if is_number(aggregate) else value

    return combine


def reducer(spec: Any) -> Combine:
    """The R of a specification: ``fn(aggregate, value) -> aggregate``."""
    bare, finish = _without_null_if(spec, "reducer")
    combine = find(_REDUCERS, bare, "reducer")
    return lambda aggregate, value: finish(combine(aggregate, value))


def _concat(sep: str = "") -> Combine:
    return lambda aggregate, value: as_text(aggregate) + sep + as_text(value)


_REDUCERS: dict[str, Callable[..., Combine]] = {
    "sum": lambda: lambda aggregate, value: number(aggregate) + number(value),
    "sub": lambda: lambda aggregate, value: number(aggregate) - number(value),
    "max": lambda: _better(max),
    "min": lambda: _better(min),
    "first": lambda: lambda aggregate, value: aggregate,
    "last": lambda: lambda aggregate, value: value,
    "concat": _concat,
    "null": lambda: lambda aggregate, value: None,
}


@dataclass(frozen=True)
class Aggregator:
    """An A.

    Attributes:
        initial: gives the initial value.
        add, subtract: ``fn(key, value, aggregate) -> aggregate``.
        merge: ``fn(key, aggregate, aggregate) -> aggregate``, for sessions.
    """

    initial: Callable[[], Any]
    add: Callable[[Any, Any, Any], Any]
    subtract: Callable[[Any, Any, Any], Any]
    merge: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class _Parts:
    initial: Any
    add: Combine
    subtract: Combine
    merge: Combine


def aggregator(spec: Any) -> Aggregator:
    """The A of a specification."""
    bare, finish = _without_null_if(spec, "aggregator")
    name, parameters = split_spec(bare, "aggregator")
    given = "init" in parameters
    init = parameters.pop("init", None)
    parts: _Parts = find(_AGGREGATORS, {"fn": name, **parameters}, "aggregator")
    initial = init if given else parts.initial
    return Aggregator(
        lambda: copy.deepcopy(initial),
        lambda key, value, aggregate: finish(parts.add(aggregate, value)),
        lambda key, value, aggregate: finish(parts.subtract(aggregate, value)),
        lambda key, one, other: finish(parts.merge(one, other)),
    )


def _listed(aggregate: Any) -> list[Any]:
    return aggregate if isinstance(aggregate, list) else []


def _without(aggregate: Any, value: Any) -> list[Any]:
    items = list(_listed(aggregate))
    at = next((at for at, item in enumerate(items) if same(item, value)), None)
    if at is not None:
        del items[at]
    return items


def _average(sign: int) -> Combine:
    def combine(aggregate: Any, value: Any) -> Any:
        before = aggregate if isinstance(aggregate, dict) else {"sum": 0, "count": 0}
        return {
            "sum": number(before.get("sum")) + sign * number(value),
            "count": number(before.get("count")) + sign,
        }

    return combine


def _average_merged(one: Any, other: Any) -> Any:
    parts = [part if isinstance(part, dict) else {} for part in (one, other)]
    return {name: sum(number(part.get(name)) for part in parts) for name in ("sum", "count")}


def _concatenation(add: str = "+", sub: str = "-", merge: str = "+") -> _Parts:
    return _Parts("0", *(_concat(sep) for sep in (add, sub, merge)))


def _kept(aggregate: Any, value: Any) -> Any:
    return aggregate


def _plus(aggregate: Any, value: Any) -> Any:
    return number(aggregate) + number(value)


_AGGREGATORS: dict[str, Callable[..., _Parts]] = {
    "sum": lambda: _Parts(0, _plus, lambda a, v: number(a) - number(v), _plus),
    "count": lambda: _Parts(0, lambda a, v: number(a) + 1, lambda a, v: number(a) - 1, _plus),
    "min": lambda: _Parts(None, _better(min), _kept, _better(min)),
    "max": lambda: _Parts(None, _better(max), _kept, _better(max)),
    "last": lambda: _Parts(None, lambda a, v: v, _kept, lambda a, b: b),
    "collect": lambda: _Parts([], lambda a, v: [*_listed(a), v], _without, lambda a, b: [*_listed(a), *_listed(b)]),
    "avg": lambda: _Parts({"sum": 0, "count": 0}, _average(1), _average(-1), _average_merged),
    "concat": _concatenation,
}


def joiner(spec: Any, *, with_key: bool = True) -> Callable[[Any, Any, Any], Any]:
    """The J of a specification: ``fn(key, left, right) -> value``; ``with_key`` False: it never sees the key."""
    bare, finish = _without_null_if(spec, "joiner")
    name, _ = split_spec(bare, "joiner")
    if name == "pair_with_key":
        return lambda key, left, right: finish([plain_key(key) if with_key else None, left, right])
    combine = find(_JOINERS, bare, "joiner")
    return lambda key, left, right: finish(combine(left, right))


_JOINERS: dict[str, Callable[..., Combine]] = {
    "pair": lambda: lambda left, right: [left, right],
    "left": lambda: lambda left, right: left,
    "right": lambda: lambda left, right: right,
    "sum": lambda: _plus,
    "concat": lambda sep="+": _concat(sep),
}
