"""One setting with what people are told of it: the source of errors, `streams config` and `docs/configuration.md`."""

from __future__ import annotations

from typing import Any

from pydantic import Field


def setting(says: str, default: Any = ..., *, unit: str = "", shown: str | None = None, **limits: Any) -> Any:
    """One field of `StreamsConfig`, with what people are told of it.

    Args:
        says: What it does, in full sentences.
        default: Its default; none for a setting that must be given.
        unit: Unit of its values; durations say theirs by their type.
        shown: Text for the default where it depends on other settings.
        limits: Bounds and forms that pydantic checks.
    """
    if "default_factory" not in limits:
        limits["default"] = default
    return Field(description=says, json_schema_extra={"unit": unit, "shown": shown}, **limits)
