"""The settings of a `TopologyTestDriver`: those of an application, with the checks of a real start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from enum import Enum
from typing import Any, get_args

from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.migration_hints import OF_THE_APPLICATION
from streams.model.windows import to_ms
from streams.operators.operator_context import Mode
from streams.runtime.settings import Policy, TaskSettings
from streams.suggest import did_you_mean

_RUNTIME = {field.name: str(field.type) for field in fields(TaskSettings)}
_OF_A_START = frozenset(StreamsConfig.model_fields)
_POLICIES = (
    "'fail' (the step fails), 'skip' (the record is left out and counted) or 'dlq' (it goes to dead_letter_topic)"
)


def merged_settings(settings: Mapping[str, Any] | StreamsConfig | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Merges settings and keywords; keywords take precedence, unless they are None.

    Args:
        settings: Settings by their names in `StreamsConfig`, or a `StreamsConfig`, whose defaults are ignored.
        keywords: The same settings, and those of tests only.

    Raises:
        ConfigError: A setting is unknown, or its value is invalid.
    """
    if isinstance(settings, StreamsConfig):
        settings = {name: getattr(settings, name) for name in settings.model_fields_set}
    merged = {**(settings or {}), **{name: value for name, value in keywords.items() if value is not None}}
    for name in merged:
        if name not in _RUNTIME and name not in _OF_A_START:
            known = name.replace(".", "_")
            here = OF_THE_APPLICATION.get(known)
            hint = did_you_mean(known, {*_RUNTIME, *_OF_A_START}) if here is None else f" Here {here}."
            raise ConfigError(f"there is no setting {name!r} of a topology.{hint}")
    return {name: _checked(name, value) for name, value in merged.items()}


def task_settings(merged: Mapping[str, Any], partition_counts: Mapping[str, int]) -> TaskSettings:
    """The settings for the runtime, without those of Kafka, Spark and disks, which have no meaning in memory."""
    known = {name: value for name, value in merged.items() if name in _RUNTIME}
    return TaskSettings(**{"application_id": "test", "partition_counts": partition_counts, **known})


def _checked(name: str, value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, timedelta):
        value = to_ms(value, name)
    kind = _RUNTIME.get(name, "")
    if kind.startswith("Policy") and value not in get_args(Policy) and not (value is None and "None" in kind):
        raise ConfigError(f"the policy {name!r} is {_POLICIES}, not {value!r}")
    if name == "mode" and value not in get_args(Mode):
        raise ConfigError(f"mode is 'strict' or 'compat', not {value!r}")
    return value
