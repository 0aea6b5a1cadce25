"""The documentation of the settings: a reference page, a commented TOML file, and the origin of each value.

Everything is generated from the fields of `StreamsConfig`, so that nothing is described twice.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from streams.config.durations import in_words, to_milliseconds
from streams.config.loading import Layer
from streams.config.settings import StreamsConfig

_WIDTH = 110
_NAMES: Mapping[Any, str] = {bool: "true or false", int: "number", str: "text", Path: "path"}


@dataclass(frozen=True)
class Setting:
    """One setting in the reference.

    Attributes:
        name: Its name.
        type: Its type, in words.
        unit: The unit of its values; empty if it has none.
        default: Its default in TOML, or in words.
        description: What it does.
        value: The default value; None if it is not set or depends on other settings.
    """

    name: str
    type: str
    unit: str
    default: str
    description: str
    value: Any


def settings() -> list[Setting]:
    """Every setting, in the order of `StreamsConfig`."""
    return [_setting(name, field) for name, field in StreamsConfig.model_fields.items()]


def markdown() -> str:
    """The page `docs/configuration.md`."""
    rows = [
        f"| `{one.name}` | {one.type}{', ' + one.unit if one.unit else ''} | {_code(one)} | {one.description} |"
        for one in settings()
    ]
    return "\n".join([_HEAD, "| setting | type | default | what it does |", "|---|---|---|---|", *rows, ""])


def toml(values: Mapping[str, Any], given: Mapping[str, str]) -> str:
    """A TOML file of all settings, with comments; settings that are not given are commented out."""
    tables = ("kafka", "spark")
    # Tables end the top level of a TOML file, so they come last.
    ordered = sorted(settings(), key=lambda one: one.name in tables)
    return "\n".join(_toml_entry(one, values[one.name], given.get(one.name)) for one in ordered)


def explained(values: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    """A line for each setting: its value in force, and the value's origin."""
    return [f"{name} = {toml_value(value)}  # {given.get(name, 'default')}" for name, value in values.items()]


def origins(layers: Sequence[Layer]) -> dict[str, str]:
    """The origin of each setting that is given; for the tables, all places that contribute."""
    found: dict[str, str] = {}
    for layer in layers:
        for name, value in layer.values.items():
            table = isinstance(value, Mapping)
            if table and not value:
                continue
            found[name] = f"{found[name]}, {layer.origin}" if table and name in found else layer.origin
    return found


def toml_value(value: Any) -> str:
    """A value in TOML; None, which TOML lacks, is the word `none`, which settings accept."""
    if value is None:
        return '"none"'
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{json.dumps(k)} = {toml_value(v)}' for k, v in value.items())} }}" if value else "{}"
    return json.dumps(str(value) if isinstance(value, Path) else value)


def _setting(name: str, field: FieldInfo) -> Setting:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    shown = extra.get("shown")
    duration = _is_duration(field)
    unit = "ms" if duration else str(extra.get("unit") or "")
    kind = "duration" if duration else _type(field.annotation)
    default = field.get_default(call_default_factory=True)
    value = default.value if isinstance(default, Enum) else default
    if shown is not None:
        return Setting(name, kind, unit, str(shown), str(field.description), None)
    if field.is_required():
        return Setting(name, kind, unit, "from the topology's name", str(field.description), None)
    text = "not set" if value in (None, "") else toml_value(value)
    if duration and value and int(text) >= 1000:
        text = f"{text} ({in_words(value)})"
    return Setting(name, kind, unit, text, str(field.description), value)


def _is_duration(field: FieldInfo) -> bool:
    marks = [*field.metadata, *(mark for part in get_args(field.annotation) for mark in get_args(part))]
    return any(getattr(mark, "func", None) is to_milliseconds for mark in marks)


def _type(annotation: Any) -> str:
    """A type in words; whether a setting may be unset is visible from its default."""
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_type(part) for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) is dict:
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    return _NAMES[annotation]


def _code(one: Setting) -> str:
    return one.default if " " in one.default else f"`{one.default}`"


def _toml_entry(one: Setting, value: Any, origin: str | None) -> str:
    about = f"{one.type.replace('`', '')}{', ' + one.unit.replace('`', '') if one.unit else ''}; default: {one.default}"
    comments = [*textwrap.wrap(one.description, _WIDTH), about]
    if origin is not None:
        comments.append(f"from: {origin}")
    lines = [f"# {line}" for line in comments]
    mark = "#" if origin is None else ""
    if isinstance(value, Mapping):
        lines += [f"{mark}[{one.name}]", *(f"{json.dumps(k)} = {toml_value(v)}" for k, v in value.items())]
    else:
        lines.append(f"{mark}{one.name} = {toml_value(value)}")
    return "\n".join([*lines, ""])


_HEAD = """\
# Configuration

Every setting of an application. `streams config` prints this list as a commented TOML file, and `streams config TARGET --explain`
shows which value is in force and where it comes from.

<!-- Generated from `streams/config/settings.py` by `streams config --format markdown`; a test compares. -->

Later places take precedence:

| place | how |
|---|---|
| defaults | the table below |
| a TOML file | `--config FILE`: settings at the top level; tables `[kafka]` and `[spark]` |
| the environment | `STREAMS_` and the name in capitals, such as `STREAMS_TASKS`; tables as JSON, such as `STREAMS_KAFKA` |
| options | `--set NAME=VALUE` for any setting, `--set spark.NAME=VALUE` for Spark's; the most common have options of their own |
| Kafka properties | `-X KEY=VALUE` (`--property`), or a Java properties file (`--properties-file`): the table `kafka` |

From Python: `load_config(Path("streams.toml"), {"tasks": 4})`. Durations are milliseconds, or have a unit: `500ms`, `5s`, `10m`,
`1h30m`, `7d`. Where a setting may be unset, `none` unsets it.

`--bad-records POLICY` is short for the four policies `deserialization`, `processing`, `production` and `future`.
"""
