"""Values that know their branch of a union, and the error for a value that does not fit its schema.

Invariants: a value that was read is marked with its branch exactly where its bare form would be refused or written as another
branch; so reading and writing give the same bytes, and the values of most unions are plain dicts and texts. A mark survives copies,
pickling and `|`, but not `{**value}`, which is a new dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.serdes.base import a_value, shown


class AvroRecord(dict[str, Any]):
    """A dict that is one record of a union of records with the same fields.

    For example, where the type of `body` is a union of `shop.Created` and `shop.Deleted`, which both have only an `id`:

        {"body": AvroRecord("shop.Deleted", {"id": "1"})}

    Reading gives such a dict, and `value | {...}` and `value.copy()` keep the branch. `{**value}` makes a bare dict, which is not
    written, because nothing shows its branch.

    Attributes:
        branch: The full name of the record, with its namespace; `map` for the map of a union of records and a map.
    """

    __slots__ = ("branch",)

    def __init__(self, branch: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.branch = branch

    def copy(self) -> AvroRecord:
        """A copy of the same branch."""
        return AvroRecord(self.branch, self)

    __copy__ = copy

    def __or__(self, other: Any) -> Any:
        made = super().__or__(other)
        return made if made is NotImplemented else AvroRecord(self.branch, made)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, AvroRecord) and other.branch != self.branch:
            return False
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return AvroRecord, (self.branch, dict(self))

    def __repr__(self) -> str:
        return f"AvroRecord({self.branch!r}, {super().__repr__()})"


class AvroSymbol(str):
    """The text of an enum, in a union in which another branch has the same text.

    Attributes:
        branch: The full name of the enum.
    """

    __slots__ = ("branch",)
    branch: str

    def __new__(cls, branch: str, symbol: str) -> AvroSymbol:
        """A text with its branch."""
        made = super().__new__(cls, symbol)
        made.branch = branch
        return made

    def __reduce__(self) -> Any:
        return AvroSymbol, (self.branch, str(self))


class AvroFixed(bytes):
    """The bytes of a fixed type, in a union in which another branch takes bytes of this length.

    Attributes:
        branch: The full name of the fixed type.
    """

    branch: str

    def __new__(cls, branch: str, data: bytes) -> AvroFixed:
        """Bytes with their branch."""
        made = super().__new__(cls, data)
        made.branch = branch
        return made

    def __reduce__(self) -> Any:
        return AvroFixed, (self.branch, bytes(self))


MARKED: Mapping[type, type] = {AvroRecord: dict, AvroSymbol: str, AvroFixed: bytes}
"""The types of values with a branch -> their bare types."""


class MisfitError(ValueError):
    """A value does not fit its schema.

    Attributes:
        path: The way to the value, from the inside outwards: `[2]`, `.lines`, `.order`.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.path: list[str] = []

    def __str__(self) -> str:
        place = "".join(reversed(self.path)).removeprefix(".")
        return f"the field '{place}': {self.args[0]}" if place else str(self.args[0])


def misfit(value: object, wanted: str) -> MisfitError:
    """The error for a value of another type."""
    return MisfitError(f"it takes {wanted}, not {a_value(value)}: {shown(value)}")
