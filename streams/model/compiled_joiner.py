"""`compiled_joiner`: makes a Python function from `fields(left=..., right=...)`, as fast as a handwritten one.

The function's source text is generated once, when the program is built, as `dataclasses` generates methods: `fields(left=["n"],
due=col("left.a") + col("right.b"))` becomes `{"n": left.get("n"), "due": add(left.get("a"), right.get("b"))}`. The function
handles dicts and missing sides, as JSON gives them; it leaves other values to `JoinedFields`, which defines the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.model.expressions import ALL, Col, Expression, JoinedFields, Lit, Operation, Selected
from streams.model.operations import OPERATIONS
from streams.model.paths import first_and_rest
from streams.model.record import pick

_JOINED = """
def joined(key, left, right):
    if (left is None or type(left) is dict) and (right is None or type(right) is dict):
        l, r = left or nothing, right or nothing
        return {{{fields}}}
    return defined(left, right)
"""


def compiled_joiner(given: JoinedFields) -> Callable[[Any, Any, Any], Any]:
    """Returns the function `(key, left value, right value) -> object`."""
    names: dict[str, Any] = {"__name__": __name__, "nothing": {}, "defined": given, "pick": pick}
    parts = [*_selection("l", given.left), *_selection("r", given.right)]
    parts += [f"{name!r}: {_source(expression, names)}" for name, expression in given.computed]
    exec(_JOINED.format(fields=", ".join(parts)), names)
    made: Callable[[Any, Any, Any], Any] = names["joined"]
    return made


def _selection(side: str, selected: Selected) -> list[str]:
    if ALL in selected:
        return [f"**{side}"]
    return [f"{name!r}: {side}.get({name!r})" for name in selected]


def _source(expression: Expression, names: dict[str, Any]) -> str:
    """The source text that computes an expression; adds the functions and constants it uses to `names`."""
    if isinstance(expression, Col):
        side, path = first_and_rest(expression.path)
        if not path or side not in ("left", "right"):
            # A whole value, or a path that begins with neither side: its result is null.
            return side if side in ("left", "right") else "None"
        name, others = first_and_rest(path)
        return f"pick({side}, {path!r})" if others else f"{side[0]}.get({name!r})"
    name = f"_{len(names)}"
    if isinstance(expression, Lit):
        names[name] = expression.value
        return name
    assert isinstance(expression, Operation), "there are no other expressions"
    operation = OPERATIONS[expression.name]
    names[name] = operation.compute if operation.lazy else operation.of_values
    operands = [_source(operand, names) for operand in expression.operands]
    return f"{name}({', '.join(f'lambda: {one}' if operation.lazy else one for one in operands)})"
