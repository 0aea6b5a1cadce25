"""Detects attributes of a user's object that would be lost after the step, before results depend on the batches.

A processor is created anew for every step. One that counts in `self.n` works in a test with one micro-batch and is wrong in
production, where micro-batches are cut differently each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from functools import cached_property
from typing import Any

from streams.errors import TopologyError

_PLAIN = (int, float, str, bytes, bool, tuple, frozenset, type(None))
_CONTAINERS = (list, dict, set, deque, bytearray)


class Attributes:
    """The attributes of an object as they were after `init`.

    An attribute has changed if it is new, has another value, or is a container of another length; a change inside an object is not
    detected. A value equal to the earlier one, such as a buffer that is empty again, is no change.

    Args:
        owner: The object.
        transient: Names of attributes that may change, or one name.
    """

    def __init__(self, owner: object, transient: str | Collection[str]) -> None:
        self._owner = owner
        self._transient = (transient,) if isinstance(transient, str) else tuple(transient)
        self._values = dict(vars(owner))
        self._sizes = {name: len(value) for name, value in self._values.items() if isinstance(value, _CONTAINERS)}

    def check(self, node: str) -> None:
        """Compares the attributes at the end of the step.

        Raises:
            TopologyError: An attribute has changed that is not declared as transient.
        """
        for name, value in vars(self._owner).items():
            if self._changed(name, value) and not self._may_change(name):
                kind = type(self._owner)
                raise TopologyError(
                    f"{kind.__name__} in '{node}' changes its attribute '{name}' after init, and a new {kind.__name__} is made for "
                    f"every micro-batch, so that the change is lost. Keep it in a store (self.ctx.store(...)) or, if it is small, "
                    f"in self.ctx.state[{name!r}]. If it is only a cache, which may be lost, declare it in the class: "
                    f"transient = ({name!r},)."
                )

    def _changed(self, name: str, value: Any) -> bool:
        if name not in self._values:
            return True
        before = self._values[name]
        if name in self._sizes:
            return type(value) is not type(before) or len(value) != self._sizes[name]
        if value is before:
            return False
        return not (type(value) is type(before) and isinstance(value, _PLAIN) and value == before)

    def _may_change(self, name: str) -> bool:
        return name in self._transient or isinstance(getattr(type(self._owner), name, None), cached_property)
