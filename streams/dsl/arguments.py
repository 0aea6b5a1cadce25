"""Recognises the options among a method's arguments by their types, in any order.

`count("name")`, `count(Materialized("store"))` and `count(Named("name"), Materialized("store"))` are all accepted. A plain string
is the name of the option in whose position it is passed. The fields of an option may also be passed as keywords of the
method: `stream("in", value_serde=JsonSerde())`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from streams.dsl.options import Named, settings_of
from streams.dsl.options import Option as SomeOption
from streams.errors import TopologyError
from streams.serdes.base import Serde
from streams.wording import described

Option = TypeVar("Option")
Other = TypeVar("Other")


def one_option(method: str, kind: type[Option], given: object, keywords: Mapping[str, object] | None = None) -> Option:
    """The one option of a method, from an object, a name or keywords; its defaults if none of these was passed.

    A keyword that is None was not passed. Raises `TopologyError` for another object, and for a keyword that is unknown or
    passed twice.
    """
    (found,) = _sorted(method, [(kind, given)])
    return _completed(method, kind, cast("Option | None", found), keywords or {})


def named_option(
    method: str,
    kind: type[Option],
    named: object,
    given: object,
    keywords: Mapping[str, object] | None = None,
    *,
    more: Sequence[object] = (),
) -> tuple[str | None, Option]:
    """The operator's name and the other option of a method, in either order; `more` are further arguments, which may be either."""
    if len(more) > 2:
        raise TopologyError(
            f"{method}() takes a name and {kind.__name__}(...), not all of {', '.join(map(described, more))}."
        )
    places = [(Named, named), (kind, given), *zip((Named, kind), more, strict=False)]
    name, found = _sorted(method, cast("list[tuple[type[Any], object]]", places))
    option = _completed(method, kind, cast("Option | None", found), keywords or {})
    return (None if name is None else cast("Named", name).name), option


def two_options(
    method: str,
    first: tuple[type[Option], object],
    second: tuple[type[Other], object],
    keywords: Mapping[str, object] | None = None,
) -> tuple[Option, Other]:
    """Both options of a method, in either order; keywords belong to the first. Raises `TopologyError`."""
    one, other = _sorted(method, [first, second])
    option = _completed(method, first[0], cast("Option | None", one), keywords or {})
    return option, second[0]() if other is None else cast("Other", other)


def operator_name(method: str, named: object) -> str | None:
    """The operator's name, for a method without other options. Raises `TopologyError`."""
    (name,) = _sorted(method, [(Named, named)])
    return None if name is None else cast("Named", name).name


def names(given: str | Iterable[str]) -> tuple[str, ...]:
    """One name or several as a tuple, without duplicates."""
    return (given,) if isinstance(given, str) else tuple(dict.fromkeys(given))


def name_and_stores(method: str, stores: object, named: object) -> tuple[str | None, tuple[str, ...]]:
    """The operator's name and its stores, in our order of arguments or in Java's, where `Named` stands before the stores."""
    if isinstance(stores, Named):
        stores, named = named or (), stores
    return operator_name(method, named), names(cast("str | Iterable[str]", stores))


def takes(function: object, count: int) -> bool:
    """Whether a function accepts this number of positional arguments; one without a signature accepts one."""
    try:
        signature = inspect.signature(cast("Any", function))
    except (TypeError, ValueError):
        return count == 1
    try:
        signature.bind(*(None,) * count)
    except TypeError:
        return False
    return True


def _sorted(method: str, places: list[tuple[type[Any], object]]) -> list[object | None]:
    """The options of each kind that were passed, in the order of the parameters."""
    kinds = list(dict.fromkeys(kind for kind, _ in places))
    found: dict[type[Any], object] = {}
    texts = [(place, given) for place, given in places if isinstance(given, str)]
    for given in (given for _, given in places if given is not None and not isinstance(given, str)):
        kind, option = _recognised(method, kinds, given)
        if kind in found:
            raise TopologyError(f"{method}() takes one {kind.__name__}, not both {found[kind]!r} and {option!r}.")
        found[kind] = option
    for place, text in texts:
        # If an object has taken its position, the string is the operator's name.
        kind = Named if place in found and Named in kinds else place
        if kind in found:
            raise TopologyError(f"{method}() takes one {kind.__name__}, not both {found[kind]!r} and {text!r}.")
        found[kind] = kind(name=text)
    return [found.get(kind) for kind in kinds]


def _recognised(method: str, kinds: list[type[Any]], given: object) -> tuple[type[Any], object]:
    """The kind of option that this object is, and the option."""
    for kind in kinds:
        if isinstance(given, kind):
            return kind, given
    if isinstance(given, Named):  # the method adds no operator that could have a name besides the option's
        return kinds[0], kinds[0](name=given.name)
    if kinds == [Named]:
        raise TopologyError(
            f"This argument of {method}() is the name of the operator: it takes text or Named(...), not {described(given)}."
        )
    takes = " or ".join("the operator's name" if kind is Named else f"{kind.__name__}(...)" for kind in kinds)
    raise TopologyError(f"{method}() takes {takes} here, not {_shown(given)}.")


def _shown(given: object) -> str:
    """The argument in an option's position, and what to write instead if that can be guessed."""
    if isinstance(given, type):
        return f"the class {given.__name__}: write {given.__name__}(...)"
    if isinstance(given, Serde):
        return f"the serde {type(given).__name__}: write key_serde=... or value_serde=..."
    return f"{type(given).__name__}(...)" if isinstance(given, SomeOption) else described(given)


def _completed(method: str, kind: type[Option], option: Option | None, keywords: Mapping[str, object]) -> Option:
    """The option with the fields that were passed as keywords."""
    fields = {field.name: field for field in dataclasses.fields(cast("Any", kind))}
    given = {name: value for name, value in keywords.items() if value is not None}
    for name in keywords:
        if name not in fields:
            guess = get_close_matches(name, fields, 1)
            hint = f" Did you mean {guess[0]}?" if guess else ""
            raise TopologyError(
                f"{method}() has no option '{name}'.{hint} It takes those of {kind.__name__}: {', '.join(fields)}."
            )
    if option is None:
        return kind(**given)
    set_already = {name for name, value, default in settings_of(option) if value != default}
    for name in given:
        if name in set_already:
            raise TopologyError(f"{method}() is given {name} twice: as a keyword and in {kind.__name__}(...).")
    return cast("Option", dataclasses.replace(cast("Any", option), **given)) if given else option
