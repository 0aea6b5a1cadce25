"""The options of a method, in Kafka Streams' order of arguments.

`count("name")`, `count(Materialized("store"))` and `count(Named("name"), Materialized("store"))` are Kafka Streams' overloads.
A plain string is the name in the option whose position it takes. The fields of an option may also be passed as keywords of
the method: `stream("in", value_serde=JsonSerde())`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from streams.dsl.options import Named, fields_of, settings_of
from streams.dsl.options import Option as SomeOption
from streams.errors import TopologyError
from streams.serdes.base import Serde
from streams.wording import described, did_you_mean

Option = TypeVar("Option")
Other = TypeVar("Other")


def one_option(method: str, kind: type[Option], given: object, keywords: Mapping[str, object] | None = None) -> Option:
    """Returns the one option of a method, given as an object, a name or keywords; the option's defaults if none of them is given.

    A keyword whose value is None counts as not given. Raises `TopologyError` for another object, and for a keyword that is unknown
    or given twice.
    """
    if isinstance(given, str | Named):
        given = cast("Any", kind)(name=given if isinstance(given, str) else given.name)
    if given is not None and not isinstance(given, kind):
        raise TopologyError(f"{method}() takes {kind.__name__}(...) here, not {_shown(given)}.")
    fields = [field.name for field in fields_of(kind)]
    for name in keywords or {}:
        if name not in fields:
            raise TopologyError(
                f"{method}() has no option '{name}'.{did_you_mean(name, fields)} It takes those of {kind.__name__}: "
                f"{', '.join(fields)}."
            )
    passed = {name: value for name, value in (keywords or {}).items() if value is not None}
    if given is None:
        return kind(**passed)
    twice = [name for name, value, default in settings_of(given) if name in passed and value != default]
    if twice:
        raise TopologyError(f"{method}() is given {twice[0]} twice: as a keyword and in {kind.__name__}(...).")
    return cast("Option", dataclasses.replace(cast("Any", given), **passed))


def named_option(
    method: str, kind: type[Option], named: object, given: object, keywords: Mapping[str, object] | None = None
) -> tuple[str | None, Option]:
    """Returns the operator's name and the other option of a method. The option may also come first, or without a name."""
    if isinstance(named, kind) or (isinstance(given, Named) and not isinstance(named, str)):
        named, given = given, named
    return operator_name(method, named), one_option(method, kind, given, keywords)


def two_options(
    method: str,
    first: tuple[type[Option], object],
    second: tuple[type[Other], object],
    keywords: Mapping[str, object] | None = None,
) -> tuple[Option, Other]:
    """Returns both options of a method. The second may be given alone; keywords belong to the first. Raises `TopologyError`."""
    (kind, one), (other_kind, other) = first, second
    if isinstance(one, other_kind):
        one, other = other, one
    return one_option(method, kind, one, keywords), one_option(method, other_kind, other)


def operator_name(method: str, named: object) -> str | None:
    """Returns the operator's name, for a method without other options. Raises `TopologyError`."""
    if named is None or isinstance(named, Named):
        return None if named is None else named.name
    if not isinstance(named, str):
        raise TopologyError(
            f"This argument of {method}() is the name of the operator: it takes text or Named(...), not {described(named)}."
        )
    return Named(named).name


def names(given: str | Iterable[str]) -> tuple[str, ...]:
    """Returns one name or several as a tuple, without duplicates."""
    return (given,) if isinstance(given, str) else tuple(dict.fromkeys(given))


def name_and_stores(method: str, stores: object, named: object) -> tuple[str | None, tuple[str, ...]]:
    """Returns the operator's name and its stores; as in Java, `Named` may also come before the stores."""
    if isinstance(stores, Named):
        stores, named = named or (), stores
    return operator_name(method, named), names(cast("str | Iterable[str]", stores))


def _shown(given: object) -> str:
    """Describes the argument given for an option, and suggests what to write instead if it can be guessed."""
    if isinstance(given, type):
        return f"the class {given.__name__}: write {given.__name__}(...)"
    if isinstance(given, Serde):
        return f"the serde {type(given).__name__}: write key_serde=... or value_serde=..."
    return f"{type(given).__name__}(...)" if isinstance(given, SomeOption) else described(given)
