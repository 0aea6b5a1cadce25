"""The OpenAPI description of the HTTP interface, made from the serdes and kinds of the stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
_SNAPSHOT: _Parameters = [
    ("snapshot", {"type": "string", "enum": ["step"]}, "All tasks as of one micro-batch."),
]
_FOLLOWING: _Parameters = [
    ("after", {"type": "string"}, "Behind the event with this id; or as a header Last-Event-ID."),
    ("initial", {"type": "boolean", "default": False}, "Begin with the rows as they are now."),
    ("follow", {"type": "boolean", "default": True}, "Wait for further commits."),
    ("key", {"type": "string"}, "The only key."),
    ("prefix", {"type": "string"}, "The beginning of the keys."),
]
_WRITING: _Parameters = [
    ("await", {"type": "string"}, "Wait for what becomes of the record in this store, and answer with its row."),
    ("await_key", {"type": "string"}, "The key of that row. Default: that of the record."),
    ("wait", {"type": "string", "default": "5s"}, "How long to wait for it."),
]
_ERROR = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
}
_REFUSED: Mapping[str, str] = {
    "400": "The request asks for something that the store cannot answer.",
    "401": "The caller is not known.",
    "403": "The caller may not do that.",
    "404": "There is no such row or store.",
    "405": "There is another method at this address.",
    "409": "The copy is not new enough.",
    "410": "The commits that a cursor continues are not kept any more.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "421": "This server has another name.",
    "429": "Too many requests, or too many wrong tokens.",
    "501": "Not available in this process.",
    "503": "The copy cannot be read here now, or too many ask.",
}
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


def openapi(served: Served, topics: Collection[str] = ()) -> dict[str, Any]:
    """The description of all endpoints of these stores.

    Args:
        served: The stores.
        topics: The topics that records can be written to.
    """
    paths: dict[str, Any] = {
        "/openapi.json": {"get": _operation("This description.", [], {"type": "object"})},
        "/metrics": {"get": _text(_operation("Metrics for Prometheus.", [], {"type": "string"}), "text/plain")},
        "/v1/health": {"get": _operation("Whether every copy here can be read.", [], {"type": "object"})},
        "/v1/metadata": {"get": _operation("The stores, and who has which copies.", [], {"type": "object"})},
        "/v1/sql": {"post": _sql()},
    }
    for store in served.stores.values():
        paths |= _of_store(store)
    for topic in sorted(topics):
        paths[f"/v1/topics/{topic}"] = {"post": _written(topic)}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Stores of {served.application_id}", "version": __version__},
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
        "security": [{"bearer": []}],
    }


def _written(topic: str) -> dict[str, Any]:
    record = {"key": {}, "value": {}, "timestamp": {"type": "integer", "format": "int64", "minimum": 0}}
    found = _operation(f"Writes a record to {topic}.", _WRITING, {"type": "object"})
    found["responses"]["202"] = {**found["responses"]["200"], "description": "It is written, and not processed yet."}
    schema = {"type": "object", "required": ["value"], "properties": record, "additionalProperties": False}
    return {**found, "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


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
    owners = _operation(f"Who has which task of {store.name}.", [("key", {"type": "string"}, "Only its task.")], {})
    changes = _operation(f"Changes of {store.name}, as server-sent events.", _FOLLOWING, {"type": "string"})
    found: dict[str, Any] = {
        f"/v1/metadata/{store.name}": {"get": owners},
        f"{front}/changes": {"get": _text(changes, "text/event-stream")},
    }
    if store.kind.segmented:
        several = [*_TIMES, *_KEYS, *_PAGING, *_SNAPSHOT, *_WAITING]
        return {**found, f"{front}/windows": {"get": _operation(f"Rows of {store.name}.", several, page)}}
    key = {"name": "key", "in": "path", "required": True, "schema": schema_of(store.reader.key_serde)}
    as_of: _Parameters = (
        [("as_of", {"type": "string"}, "The time of the version.")] if store.kind is StoreKind.VERSIONED else []
    )
    get = _operation(f"The row of a key of {store.name}.", [*as_of, *_KEYS, *_WAITING], row)
    get["parameters"].insert(0, key)
    found[f"{front}/keys/{{key}}"] = {"get": get}
    if store.kind is not StoreKind.VERSIONED:
        several = [*_RANGE, *_KEYS, *_PAGING, *_SNAPSHOT, *_WAITING]
        found[f"{front}/range"] = {"get": _operation(f"Rows of {store.name}.", several, page)}
        batch = _operation(f"The rows of many keys of {store.name}.", [*_SNAPSHOT, *_WAITING], page)
        keys = {"type": "array", "items": schema_of(store.reader.key_serde)}
        body = {"type": "object", "required": ["keys"], "properties": {"keys": keys}}
        batch["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        found[f"{front}/keys:batch"] = {"post": batch}
    return found


def _operation(summary: str, parameters: _Parameters, schema: dict[str, Any]) -> dict[str, Any]:
    headers = {name: {"schema": {"type": "string"}} for name in (POSITION, COMMIT, AGE)}
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "summary": summary,
        "parameters": [
            {"name": name, "in": "query", "schema": kind, "description": text} for name, kind, text in parameters
        ],
        "responses": {
            "200": {"description": "OK", "headers": headers, "content": {"application/json": {"schema": schema}}},
            **{status: {"description": text, "content": refused} for status, text in _REFUSED.items()},
        },
    }


def _text(operation: dict[str, Any], kind: str) -> dict[str, Any]:
    """An operation whose rows are not JSON."""
    good = operation["responses"]["200"]
    schema = good["content"]["application/json"]
    return {**operation, "responses": {**operation["responses"], "200": {**good, "content": {kind: schema}}}}


def _row(store: ReadStore) -> dict[str, Any]:
    properties: dict[str, Any] = {"key": schema_of(store.reader.key_serde), "value": store.value_schema}
    if store.kind.timestamped or store.kind is StoreKind.VERSIONED:
        properties["timestamp"] = {"type": "integer", "format": "int64"}
    if store.kind.segmented:
        times = {"start": {"type": "integer"}, "end": {"type": ["integer", "null"]}}
        properties["window"] = {"type": "object", "properties": times}
    return {"type": "object", "properties": properties}
