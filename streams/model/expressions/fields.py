"""`fields(...)`: makes objects of fields and expressions, for `map_values` and for joiners.

Like `select` and `with_columns` of data frames, but as one function: without `left` and `right` it maps a value, with them it joins
two. `"*"` are all fields of a value, and what follows replaces fields of the same name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, overload

from streams.errors import NoFieldsError, TopologyError
from streams.model.expressions.expression import Col, Expression
from streams.model.fields import has_fields, pick
from streams.wording import described

ALL = "*"

Selected: TypeAlias = Sequence[str]
Computed: TypeAlias = "tuple[tuple[str, Expression], ...]"


@dataclass(frozen=True, slots=True, repr=False)
class ValueFields:
    """An object for each value, made by `fields(...)`. A null value stays null.

    With two values it is `JoinedFields`, if its expressions read `left.<field>` and `right.<field>`.

    Attributes:
        everything: Whether all fields of the value come first.
        computed: The fields by name, with what computes each.
    """

    everything: bool
    computed: Computed

    @overload
    def __call__(self, value: Any, /) -> dict[str, Any]: ...

    @overload
    def __call__(self, left: Any, right: Any, /) -> dict[str, Any]: ...

    def __call__(self, value: Any, *right: Any) -> dict[str, Any]:
        """The object. Raises `RecordError` as the expressions do, and `NoFieldsError` for a value without fields."""
        if right:
            joined = JoinedFields.of(self)
            if joined is None:
                raise TypeError(f"{self!r} is of one value: with two, expressions read left.<field> and right.<field>")
            return joined(value, *right)
        if value is None:
            return value  # type: ignore[return-value]  # a deletion, which no type says of a stream's values
        made = all_fields(value) if self.everything else {}
        read = partial(pick, value)
        for name, expression in self.computed:
            made[name] = expression.evaluate(read)
        return made

    def __repr__(self) -> str:
        return f"fields({', '.join([*([repr(ALL)] if self.everything else []), *_shown(self.computed)])})"


@dataclass(frozen=True, slots=True, repr=False)
class JoinedFields:
    """An object for each pair of values, made by `fields(left=..., right=...)`.

    Attributes:
        left: The left value's fields: `"*"`, or names.
        right: Those of the right value, which win over the left value's.
        computed: Further fields by name, of expressions over `left.<field>` and `right.<field>`.
    """

    left: Selected
    right: Selected
    computed: Computed = ()

    def __call__(self, left: Any, right: Any) -> dict[str, Any]:
        """The object; a missing side has no fields. Raises `RecordError` as the expressions do."""
        made = {**_selected(left, self.left), **_selected(right, self.right)}
        read = partial(pick, {"left": left, "right": right})
        for name, expression in self.computed:
            made[name] = expression.evaluate(read)
        return made

    @classmethod
    def of(cls, given: ValueFields) -> JoinedFields | None:
        """The same of `fields(due=col("left.total") - col("right.credit"))`, which reads both values; None if it reads others."""
        paths = [path for _, expression in given.computed for path in expression.paths]
        of_both = paths and all(path.partition(".")[0] in ("left", "right") for path in paths)
        return cls((), (), given.computed) if of_both and not given.everything else None

    def __repr__(self) -> str:
        sides = [f"{name}={side!r}" for name, side in (("left", self.left), ("right", self.right)) if side]
        return f"fields({', '.join([*sides, *_shown(self.computed)])})"


@overload
def fields(*names: str, **computed: Expression) -> ValueFields: ...


@overload
def fields(
    *, left: Literal["*"] | Selected = (), right: Literal["*"] | Selected = (), **computed: Expression
) -> JoinedFields: ...


def fields(*names: str, **computed: Any) -> ValueFields | JoinedFields:
    """Makes an object of fields and expressions, for `map_values`, or of two values, for a joiner.

    Examples::

        stream.map_values(fields("user", "city", total=col("price") * col("count")))
        stream.map_values(fields("*", total=col("price") * col("count")))
        orders.join(customers, fields(left="*", right=["name"], due=col("left.total") - col("right.credit")))
        orders.join(customers, fields(user=col("left.user"), name=col("right.name")))

    Args:
        *names: Fields to take over; `"*"`: all. A null value stays null.
        **computed: Further fields, as expressions. `left` and `right`, given a list of names or `"*"`, are the fields to take
            over from the two values of a join; the right value's win. Expressions then read `left.<field>` and `right.<field>`.

    Raises:
        TopologyError: A name is not that of a field, or a further field is no expression.
    """
    sides = {side: computed.pop(side) for side in ("left", "right") if _is_selection(computed.get(side))}
    expressions = tuple((name, _checked(name, given)) for name, given in computed.items())
    if sides:
        if names:
            raise TopologyError("fields() takes names of one value, or left=[...] and right=[...] of two, not both.")
        return JoinedFields(_names(sides.get("left", ())), _names(sides.get("right", ())), expressions)
    if not names and not expressions:
        raise TopologyError("fields() takes at least one field: fields('user', total=col('price') * col('count')).")
    taken = _names(names)
    made = {name: Col(name) for name in taken if name != ALL}
    return ValueFields(ALL in taken, tuple({**made, **dict(expressions)}.items()))


def all_fields(value: Any) -> dict[str, Any]:
    """All fields of a value by name; an array's elements have no names. Raises `NoFieldsError` for texts, numbers and the like."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list):
        return {}
    if not has_fields(value):
        raise NoFieldsError(ALL)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    named = getattr(value, "_fields", None) or getattr(value, "__struct_fields__", None)
    return {name: getattr(value, name) for name in named} if named else dict(vars(value))


def _selected(value: Any, names: Selected) -> dict[str, Any]:
    if ALL in names:
        return {} if value is None else all_fields(value)
    return {name: pick(value, name) for name in names}


def _is_selection(given: object) -> bool:
    return isinstance(given, str | list | tuple)


def _names(given: Selected) -> Selected:
    """The names of a selection; `"*"` stands for itself. Raises `TopologyError`."""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise TopologyError(f"fields() takes names of fields, not {described(name)}.")
        if "." in name:
            last = name.rpartition(".")[2] or "name"
            raise TopologyError(f"fields({name!r}) needs a name for the nested field: fields({last}=col({name!r})).")
    return names


def _checked(name: str, given: object) -> Expression:
    if isinstance(given, Expression):
        return given
    if isinstance(given, str):
        raise TopologyError(
            f"fields({name}={given!r}): write {name}=col({given!r}) for the field, or {name}=lit({given!r}) for the text."
        )
    raise TopologyError(f"fields({name}=...) takes an expression such as col('price') * 2, not {described(given)}.")


def _shown(computed: Computed) -> list[str]:
    """The fields as a program writes them; one that only keeps its name, by its name."""
    return [repr(name) if isinstance(one, Col) and one.path == name else f"{name}={one!r}" for name, one in computed]
