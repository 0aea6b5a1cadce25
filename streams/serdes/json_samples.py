"""Tests, when a typed serde is made, whether a type's values come back unchanged, with samples of each branch.

Fields are examined first, because their remedy is known: fields that are not written, or are written under a name that is not read.
Then samples are written and read. They are made from JSON texts that the parts of the type read on their own, so each member of a
union also reads the values that other members wrote. If no text is found for a part (a pattern, a user's function), each value is
checked when it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import orjson
from pydantic import Secret, SecretBytes, SecretStr
from pydantic_core import SchemaError, SchemaValidator, ValidationError

from streams.serdes.base import shown, type_name
from streams.serdes.read_back import difference, parts_of

_DATES = ("2024-05-01", "2024-05-01T00:00:00", "2024-05-01T12:30:00Z", "12:30:00", "P1DT1S", "PT0S")
_NAMES = (
    "10.0.0.1",
    "10.0.0.0/8",
    "::1",
    "http://a.example/",
    "a@b.example",
    "/a",
    "0f8fad5b-d9cb-469f-a165-70867728950e",
)
_TEXTS = ("a", "1", "1.5", "true", "1+2j", "aaaaaaaaaaaa", *_DATES, *_NAMES)
_DOCS = tuple(
    orjson.dumps(one) for one in (1, 0, 2, 100, 1.5, 0.25, True, False, None, *_TEXTS, [], ["a"], [1], {}, {"a": 1})
)
_MOST = 40
"""The most samples of a part; an enum may have more members."""
_DEEPEST = 12
_NO_MORE = object()

_OBJECT = "Give each class a field that only it has, or one such as kind: Literal['created'], to distinguish them"
_TEXT = "Declare one of the two, or let values of one be dataclasses"


def lost(schema: Any, write: Callable[[Any], bytes], read: Callable[[bytes], Any]) -> str | None:
    """Why values of a type are not read back as they were written, with the remedy; None if they are.

    Args:
        schema: The core schema of the type.
        write: Writes a value as JSON. Raises `TypeError` or `ValueError` if it cannot.
        read: Reads a value from JSON. Raises `ValueError` if it cannot.
    """
    found = next(_of_fields(schema, _refs(schema), "", in_model=False, seen=frozenset()), None)
    return found or next(_Samples(schema, write).lost(read), None)


def _refs(schema: Any) -> Mapping[str, Any]:
    return {one["ref"]: one for one in schema["definitions"]} if schema["type"] == "definitions" else {}


# --- Fields.


def _of_fields(
    schema: Any, refs: Mapping[str, Any], place: str, *, in_model: bool, seen: frozenset[str]
) -> Iterator[str]:
    """The reasons why fields of the classes within a schema are not read back."""
    kind = schema.get("type")
    if kind == "definition-ref":
        if schema["schema_ref"] not in seen:
            within = seen | {schema["schema_ref"]}
            yield from _of_fields(refs[schema["schema_ref"]], refs, place, in_model=in_model, seen=within)
    elif kind == "definitions":
        yield from _of_fields(schema["schema"], refs, place, in_model=in_model, seen=seen)
    elif kind in ("model", "dataclass"):
        name = place or schema["cls"].__name__
        inner = schema["schema"]
        if "fields" in inner:
            yield from _of_names(schema, inner, in_model or kind == "model", name)
        yield from _of_fields(inner, refs, name, in_model=in_model or kind == "model", seen=seen)
    elif "fields" in schema:
        for name, field in _named_fields(schema):
            yield from _of_fields(
                field["schema"], refs, f"{place}.{name}" if place else name, in_model=in_model, seen=seen
            )
    else:
        for part in _parts(schema):
            yield from _of_fields(part, refs, place, in_model=in_model, seen=seen)


def _parts(schema: Any) -> Iterator[Any]:
    for name in (
        "schema",
        "keys_schema",
        "values_schema",
        "items_schema",
        "lax_schema",
        "strict_schema",
        "json_schema",
        "choices",
        "steps",
    ):
        part = schema.get(name, ())
        parts: Iterable[Any] = (
            (part,) if isinstance(part, dict) and "type" in part else part.values() if isinstance(part, dict) else part
        )
        yield from (one[0] if isinstance(one, tuple) else one for one in parts)


def _named_fields(schema: Any) -> list[tuple[str, Any]]:
    fields = schema["fields"]
    return list(fields.items()) if isinstance(fields, dict) else [(field["name"], field) for field in fields]


def _of_names(schema: Any, inner: Any, by_alias: bool, name: str) -> Iterator[str]:
    """The reasons why fields of a class are not written, or are written under a name that is not read."""
    config = schema.get("config", {})
    by_name = config.get("validate_by_name") or config.get("populate_by_name")
    by_alias_only = config.get("validate_by_alias", True)
    for own, field in _named_fields(inner):
        place = f"{name}.{own}"
        if field.get("serialization_exclude"):
            yield f"{place} is never written (exclude=True), and would be read back as its default. Leave exclude=True out"
        if field.get("init_only"):
            yield f"{place} is an InitVar, which an object does not keep. Make a field of it"
        written = field.get("serialization_alias", own) if by_alias else own
        read = _read_names(field, own, by_name, by_alias_only)
        if written not in read:
            cure = (
                "Give the field one name: alias=... alone, in a pydantic model" if by_alias else "Leave the alias out"
            )
            yield (
                f"{place} is written as {written!r} and read as {' or '.join(map(repr, read)) or 'nothing'}. {cure}; or let the "
                f"class read its fields by their own names, too, with ConfigDict(validate_by_name=True, validate_by_alias=True)"
            )
    computed = [field["property_name"] for field in inner.get("computed_fields", ())]
    if by_alias and computed and config.get("extra_fields_behavior") == "forbid":
        yield (
            f"{name}.{computed[0]} is computed and written, and extra='forbid' does not let it be read. Use extra='ignore', or a "
            f"plain property"
        )


def _read_names(field: Any, own: str, by_name: bool, by_alias: bool) -> list[str]:
    """The names under which a field is looked for at the top level of an object."""
    alias = field.get("validation_alias")
    if alias is None:
        return [own]
    paths = [[alias]] if isinstance(alias, str) else alias if isinstance(alias[0], list) else [alias]
    found = [path[0] for path in paths if len(path) == 1]
    return [*(found if by_alias else ()), *([own] if by_name else ())]


# --- Samples.


class _Samples:
    """Samples of a type's values."""

    def __init__(self, schema: Any, write: Callable[[Any], bytes]) -> None:
        self._schema = schema
        self._write = write
        self._refs = _refs(schema)

    def lost(self, read: Callable[[bytes], Any]) -> Iterator[str]:
        """The reasons why samples are not read back as they were written."""
        for sample in self.of(self._schema, 0):
            if sample is None:
                continue
            try:
                data = self._write(sample)
            except (TypeError, ValueError) as error:
                yield f"a value such as {shown(sample)} cannot be written as JSON: {error}. {_cure(sample)}"
                continue
            try:
                back = read(data)
            except ValueError as error:
                yield f"{shown(sample)} is written as {shown(data)}, which cannot be read back: {_told(error)}. {_cure(sample)}"
                continue
            why = difference(sample, back)
            if why is not None:
                yield f"{why} (from {shown(data)}). {_cure(why.value, why.back)}"

    def of(self, schema: Any, depth: int) -> list[Any]:
        """Samples of a part, enough to distinguish its branches; empty if none was found."""
        if depth > _DEEPEST:
            return []
        make = getattr(self, "_" + schema["type"].replace("-", "_"), None)
        found: list[Any] = self._texts(schema) if make is None else make(schema, depth + 1)
        return found[:_MOST] if schema["type"] != "enum" else found

    def _reader(self, schema: Any) -> SchemaValidator | None:
        whole = {"type": "definitions", "schema": schema, "definitions": list(self._refs.values())}
        try:
            return SchemaValidator(whole if self._refs else schema)
        except SchemaError:
            return None

    def _texts(self, schema: Any, docs: Iterable[bytes] = _DOCS) -> list[Any]:
        """The values that a part reads from some texts."""
        reader = self._reader(schema)
        if reader is None:
            return []
        found = []
        for doc in docs:
            try:
                found.append(reader.validate_json(doc, strict=True))
            except Exception:
                # A user's function may raise any exception.
                continue
        return found

    def _made(self, schema: Any, samples: Iterable[Any]) -> list[Any]:
        """The values that a part makes from other values, if it accepts them."""
        reader = self._reader(schema)
        if reader is None:
            return []
        found = []
        for sample in samples:
            try:
                found.append(reader.validate_python(sample, strict=False))
            except Exception:
                continue
        return found

    def _definitions(self, schema: Any, depth: int) -> list[Any]:
        return self.of(schema["schema"], depth)

    def _definition_ref(self, schema: Any, depth: int) -> list[Any]:
        return self.of(self._refs[schema["schema_ref"]], depth + _DEEPEST // 3)

    def _default(self, schema: Any, depth: int) -> list[Any]:
        return self.of(schema["schema"], depth)

    def _nullable(self, schema: Any, depth: int) -> list[Any]:
        return [*self.of(schema["schema"], depth)[: _MOST - 1], None]

    def _enum(self, schema: Any, depth: int) -> list[Any]:
        return list(schema["cls"])

    def _literal(self, schema: Any, depth: int) -> list[Any]:
        return list(schema["expected"])

    def _any(self, schema: Any, depth: int) -> list[Any]:
        return [1, "a", None]

    def _union(self, schema: Any, depth: int) -> list[Any]:
        """For each member of a union, its own samples, and the values that it reads from samples of the others."""
        choices = [choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]]
        return self._members(choices, depth)

    def _tagged_union(self, schema: Any, depth: int) -> list[Any]:
        return self._members(list(schema["choices"].values()), depth)

    def _members(self, choices: list[Any], depth: int) -> list[Any]:
        share = max(4, _MOST // (2 * len(choices)))
        own = [self.of(choice, depth)[:share] for choice in choices]
        docs = list(dict.fromkeys(doc for samples in own for doc in self._written(samples)))
        of_each = [[*self._texts(choice, docs), *samples] for choice, samples in zip(choices, own, strict=True)]
        return [sample for row in zip_longest(*of_each, fillvalue=_NO_MORE) for sample in row if sample is not _NO_MORE]

    def _written(self, samples: Iterable[Any]) -> Iterator[bytes]:
        for sample in samples:
            try:
                yield self._write(sample)
            except (TypeError, ValueError):
                continue

    def _list(self, schema: Any, depth: int) -> list[Any]:
        return self._of_items(schema, depth, list)

    def _set(self, schema: Any, depth: int) -> list[Any]:
        return self._of_items(schema, depth, set)

    def _frozenset(self, schema: Any, depth: int) -> list[Any]:
        return self._of_items(schema, depth, frozenset)

    def _of_items(self, schema: Any, depth: int, kind: Callable[[Iterable[Any]], Any]) -> list[Any]:
        samples = self.of(schema.get("items_schema", {"type": "any"}), depth)
        try:
            return self._made(schema, [kind(()), kind(samples), *(kind((sample,)) for sample in samples[:2])])
        except TypeError:  # a set of elements without a hash
            return []

    def _tuple(self, schema: Any, depth: int) -> list[Any]:
        items = [self.of(item, depth) for item in schema["items_schema"]]
        if "variadic_item_index" in schema:
            return self._made(schema, [(), tuple(items[0])]) if len(items) == 1 else []
        return self._made(schema, map(tuple, _beside(items)))

    def _dict(self, schema: Any, depth: int) -> list[Any]:
        keys = self.of(schema.get("keys_schema", {"type": "any"}), depth)
        items = self.of(schema.get("values_schema", {"type": "any"}), depth) or [None]
        try:
            rows = [items[at : at + len(keys)] for at in range(0, len(items), len(keys) or 1)]
            several = [dict(zip(keys, row, strict=False)) for row in rows]
            return self._made(schema, [{}, *several, *({key: items[0]} for key in keys if key is not None)])
        except TypeError:  # keys that have no hash
            return []

    def _typed_dict(self, schema: Any, depth: int) -> list[Any]:
        return self._made(schema, self._objects(schema, depth))

    def _model(self, schema: Any, depth: int) -> list[Any]:
        return self._of_class(schema, depth)

    def _dataclass(self, schema: Any, depth: int) -> list[Any]:
        return self._of_class(schema, depth)

    def _of_class(self, schema: Any, depth: int) -> list[Any]:
        inner = schema["schema"]
        if "fields" in inner:
            return self._made(schema, self._objects(inner, depth))
        # A validator of the whole class, or the value of a model without fields of its own.
        return self._made(
            schema,
            self._objects(inner["schema"], depth) if "fields" in inner.get("schema", ()) else self.of(inner, depth),
        )

    def _function_after(self, schema: Any, depth: int) -> list[Any]:
        return self._made(schema, self.of(schema["schema"], depth)) or self._texts(schema)

    def _function_before(self, schema: Any, depth: int) -> list[Any]:
        return self._texts(schema, self._written(self.of(schema["schema"], depth))) or self._texts(schema)

    def _function_wrap(self, schema: Any, depth: int) -> list[Any]:
        return self._function_before(schema, depth)

    def _json_or_python(self, schema: Any, depth: int) -> list[Any]:
        made = schema["json_schema"]
        if made.get("schema", {}).get("type") == "typed-dict":  # a NamedTuple
            return self._made(made, self.of(made["schema"], depth))
        return self._texts(schema)

    def _objects(self, inner: Any, depth: int) -> list[dict[str, Any]]:
        """Objects whose fields have the names under which they are read."""
        names, columns = [], []
        for name, field in _named_fields(inner):
            if not field.get("init", True):
                continue
            samples = self.of(field["schema"], depth)
            if samples:
                names.append(_name_to_give(field, name))
                columns.append(samples)
            elif field["schema"]["type"] != "default" and field.get("required", True):
                return []
        return [dict(zip(names, row, strict=True)) for row in _beside(columns)]


def _name_to_give(field: Any, name: str) -> str:
    alias = field.get("validation_alias", name)
    if isinstance(alias, str):
        return alias
    path = alias[0] if isinstance(alias[0], list) else alias
    return str(path[0])


def _beside(columns: list[list[Any]]) -> Iterator[list[Any]]:
    """Rows that together contain each sample of each column at least once."""
    if not all(columns):
        return
    for at in range(max(map(len, columns), default=1)):
        yield [column[at % len(column)] for column in columns]


def _told(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first["loc"] else first["msg"]


_SECRETS = (SecretStr, SecretBytes, Secret)


def _cure(sample: Any, back: Any = None) -> str:
    """The remedy: what to change in the type."""
    if isinstance(sample, _SECRETS):
        return (
            "A secret is written as asterisks: declare the type of what is in it, and hide it from the repr if need be"
        )
    if back is None or type(sample) is type(back):
        return "Use types that JSON reads back, or write a serde of your own for it"
    names = " and ".join(sorted({type_name(type(part)) for part in (sample, back)}))
    return f"In JSON, {names} look alike here. {_TEXT if parts_of(sample) is None else _OBJECT}"
