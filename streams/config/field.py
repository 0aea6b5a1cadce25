"""The definition of one setting with its documentation, as used in errors, `streams config` and `docs/configuration.md`."""

from __future__ import annotations

from typing import Any

from pydantic import Field


def setting(says: str, default: Any = ..., *, unit: str = "", shown: str | None = None, **limits: Any) -> Any:
    """One field of `StreamsConfig`, with its documentation.

    Args:
        says: What the setting does, in full sentences.
        default: The default; none for a setting that must be given.
        unit: The unit of its values; not needed for durations, which have it in their type.
        shown: The text for a default that depends on other settings.
        limits: Limits and patterns that pydantic checks.
    """
    if "default_factory" not in limits:
        limits["default"] = default
    return Field(description=says, json_schema_extra={"unit": unit, "shown": shown}, **limits)
