"""Whether a function computes keys of a dict, as in `{**a, v: a.get(v, 0) + 1}`; read from its instructions.

The aggregate of such a function may be a dict with numbers as keys, which JSON reads back as text. If the aggregate's type is
unknown, its store also stores the types of the keys (`JsonWithKeys`). The function is not called, and its callees are not examined.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType
from typing import Any


def makes_keys(function: Callable[..., Any]) -> bool:
    """Whether a Python function makes a dict with a key that is not a constant, or assigns to such a key or index."""
    if isinstance(function, partial):
        function = function.func
    called = function if hasattr(function, "__code__") else type(function).__call__
    code = getattr(called, "__code__", None)
    return isinstance(code, CodeType) and any(map(_makes_keys, _codes(code)))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of the comprehensions and functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _makes_keys(code: CodeType) -> bool:
    steps = [
        step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "NOP", "RESUME", "EXTENDED_ARG")
    ]
    return any(_puts(steps, at) for at in range(len(steps)))


def _puts(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Whether an instruction stores a value under a key that is not a constant."""
    step = steps[at]
    if step.opname == "MAP_ADD":
        return True
    if step.opname == "STORE_SUBSCR":
        return not steps[at - 1].opname.startswith("LOAD_CONST")
    if step.opname != "BUILD_MAP" or not step.arg:
        return False
    return not all(_constant_keys(steps, at, step.arg))


def _constant_keys(steps: Sequence[dis.Instruction], end: int, count: int) -> Iterator[bool]:
    """Whether each key of a dict display is a constant; False where that is unclear. Its 2 * count operands are on the stack."""
    at = end
    for operand in range(2 * count):
        start = _start_of_operand(steps, at)
        if start < 0:
            yield False
            return
        if operand % 2:  # from the last operand backwards: value, key, value, key
            yield at - start == 1 and steps[start].opname.startswith("LOAD_CONST")
        at = start


def _start_of_operand(steps: Sequence[dis.Instruction], end: int) -> int:
    """The index of the first instruction of the operand that is on top of the stack at `end`; -1: unclear, as after a jump."""
    depth, at = 0, end
    while at > 0:
        at -= 1
        step = steps[at]
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return -1
        depth += dis.stack_effect(step.opcode, step.arg)
        if depth == 1:
            return at
    return -1
