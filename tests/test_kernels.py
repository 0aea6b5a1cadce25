"""Kernels that get all arrays from their callers, and those that make some."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

MAKES_ARRAYS = frozenset({"carray", "copy", "astype"})
IN_NUMPY = frozenset({"int64", "uint64", "int32", "uint32", "int8", "uint8", "float64", "floor", "isnan"})
"""What kernels use of numpy that makes no array."""
COUNTS, DOES_NOT = "allocating_kernel", "kernel"


def kernels() -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """The decorator, the file and the function of each kernel."""
    for folder in ("streams", "state"):
        for path in sorted(Path(folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    for one in node.decorator_list:
                        if isinstance(one, ast.Name) and one.id in (COUNTS, DOES_NOT):
                            yield one.id, str(path), node


def test_kernels_without_counted_references_neither_make_arrays_nor_call_kernels_that_do() -> None:
    """Numba would compile a call of one that does, and never free the array that it returns."""
    counting = {node.name for decorator, _, node in kernels() if decorator == COUNTS}
    without = [(path, node) for decorator, path, node in kernels() if decorator == DOES_NOT]
    names = {node.name for _, node in without}
    assert len(without) > 50
    wrong = []
    for path, node in without:
        for call in ast.walk(node):
            if isinstance(call, ast.Call):
                called = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
                of_numpy = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "np"
                makes = called in MAKES_ARRAYS or (of_numpy and called not in IN_NUMPY)
                if makes or (called in counting and called not in names):
                    wrong.append(f"{path}: {node.name} calls {called}")
    assert not wrong
