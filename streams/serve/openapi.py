"""The description of the HTTP interface as OpenAPI, made from the stores' serdes and kinds."""

from __future__ import annotations

from typing import Any

from state.stores.spec import StoreKind
from streams.serdes.json_shown import schema_of
from streams.serve.reading import ReadStore
from streams.serve.requests import AGE, COMMIT, KEYS, POSITION
from streams.serve.served import Served
from streams.version import __version__

_Parameters = list[tuple[str, dict[str, Any], str]]

_WAITING: _Parameters = [
    (
        "consistency",
        {"type": "string", "enum": ["any", "bound", "latest"], "default": "bound"},
        "How new the answer has to be.",
    ),
    ("position", {"type": "string"}, f"Source offsets that have to be read; or as a header {POSITION}."),
    ("commits", {"type": "string"}, f"Commits that have to be there; or as a header {COMMIT}."),
    ("max_age", {"type": "string"}, "How old the answer may be: 500ms, 2s."),
    ("wait", {"type": "string", "default": "0"}, "How long to wait until the answer is new enough."),
    ("redirect", {"type": "boolean", "default": False}, "Answer with 307 if one other process has the rows."),
]
_KEYS: _Parameters = [
    (KEYS, {"type": "string", "enum": ["json"]}, "Keys in the address are JSON, texts with quotes as well."),
]
_PAGING: _Parameters = [
    ("reverse", {"type": "boolean", "default": False}, "The largest first."),
    ("limit", {"type": "integer"}, "Rows of a page."),
    ("cursor", {"type": "string"}, "Continues behind a page, as of the same commits."),
]
_RANGE: _Parameters = [
    ("from", {"type": "string"}, "The smallest key."),
    ("to", {"type": "string"}, "The largest key, inclusive."),
    ("prefix", {"type": "string"}, "The beginning of the keys."),
]
_TIMES: _Parameters = [
    ("key", {"type": "string"}, "The only key."),
    (
        "window_from",
        {"type": "string"},
        "The smallest start of a window, or end of a session: ms, or such as 2024-05-01T10:00:00Z.",
    ),
    ("window_to", {"type": "string"}, "The largest one, inclusive."),
    ("latest", {"type": "integer"}, "So many windows, the latest first."),
]


def openapi(served: Served) -> dict[str, Any]:
    """The description of all endpoints of these stores."""
    paths: dict[str, Any] = {
        "/v1/health": {"get": _operation("Whether every copy here can be read.", [], {"type": "object"})},
        "/v1/metadata": {"get": _operation("The stores, and who has which copies.", [], {"type": "object"})},
        "/v1/sql": {"post": _sql()},
    }
    for store in served.stores.values():
        paths |= _of_store(store)
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Stores of {served.application_id}", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "security": [{"bearer": []}],
    }


def _sql() -> dict[str, Any]:
    columns = {"type": "array", "items": {"type": "string"}}
    result = {"columns": columns, "rows": {"type": "array", "items": {"type": "array"}}}
    found = _operation("The result of one SELECT over the stores.", _WAITING, {"type": "object", "properties": result})
    body = {"type": "object", "required": ["sql"], "properties": {"sql": {"type": "string"}}}
    return {**found, "requestBody": {"required": True, "content": {"application/json": {"schema": body}}}}


def _of_store(store: ReadStore) -> dict[str, Any]:
    front, row = f"/v1/stores/{store.name}", _row(store)
    page = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": row}, "cursor": {"type": ["string", "null"]}},
    }
    if store.kind.segmented:
        return {
            f"{front}/windows": {
                "get": _operation(f"Rows of {store.name}.", [*_TIMES, *_KEYS, *_PAGING, *_WAITING], page)
            }
        }
    key = {"name": "key", "in": "path", "required": True, "schema": schema_of(store.reader.key_serde)}
    as_of: _Parameters = (
        [("as_of", {"type": "string"}, "The time of the version.")] if store.kind is StoreKind.VERSIONED else []
    )
    get = _operation(f"The row of a key of {store.name}.", [*as_of, *_KEYS, *_WAITING], row)
    get["parameters"].insert(0, key)
    get["responses"]["404"] = {"description": "There is no such row."}
    found = {f"{front}/keys/{{key}}": {"get": get}}
    if store.kind is not StoreKind.VERSIONED:
        found[f"{front}/range"] = {
            "get": _operation(f"Rows of {store.name}.", [*_RANGE, *_KEYS, *_PAGING, *_WAITING], page)
        }
        batch = _operation(f"The rows of many keys of {store.name}.", _WAITING, page)
        keys = {"type": "array", "items": schema_of(store.reader.key_serde)}
        body = {"type": "object", "required": ["keys"], "properties": {"keys": keys}}
        batch["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        found[f"{front}/keys:batch"] = {"post": batch}
    return found


def _operation(summary: str, parameters: _Parameters, schema: dict[str, Any]) -> dict[str, Any]:
    headers = {name: {"schema": {"type": "string"}} for name in (POSITION, COMMIT, AGE)}
    return {
        "summary": summary,
        "parameters": [
            {"name": name, "in": "query", "schema": kind, "description": text} for name, kind, text in parameters
        ],
        "responses": {
            "200": {"description": "OK", "headers": headers, "content": {"application/json": {"schema": schema}}},
            "409": {"description": "The copy is not new enough."},
            "503": {"description": "The copy cannot be read here now."},
        },
    }


def _row(store: ReadStore) -> dict[str, Any]:
    properties: dict[str, Any] = {"key": schema_of(store.reader.key_serde), "value": store.value_schema}
    if store.kind.timestamped or store.kind is StoreKind.VERSIONED:
        properties["timestamp"] = {"type": "integer", "format": "int64"}
    if store.kind.segmented:
        times = {"start": {"type": "integer"}, "end": {"type": ["integer", "null"]}}
        properties["window"] = {"type": "object", "properties": times}
    return {"type": "object", "properties": properties}
