"""The definition of one setting with its documentation, as used in errors, `streams config` and `docs/configuration.md`."""

from __future__ import annotations

from typing import Any

from pydantic import Field


def setting(says: str, default: Any = ..., *, unit: str = "", shown: str | None = None, **limits: Any) -> Any:
    """One field of `StreamsConfig`, with its documentation."""
    if "default_factory" not in limits:
        limits["default"] = default
    return Field(description=says, json_schema_extra={"unit": unit, "shown": shown}, **limits)
