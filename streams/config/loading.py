"""Loads the settings of an application, and makes their documentation."""

from __future__ import annotations

import json
import logging
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, SettingsError

from state.secrets import secret_values
from streams.config.settings import StreamsConfig, in_words, to_milliseconds
from streams.errors import ConfigError
from streams.migration_hints import OF_THE_APPLICATION
from streams.wording import did_you_mean

# --- The sources of settings: defaults, a TOML file, the environment (`STREAMS_...`) and options; later ones take precedence.

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layer:
    """Settings from one source.

    Attributes:
        origin: A description of the source.
        values: Settings by name, not validated yet.
        open_file: The file, if it has secrets that other users can read.
    """

    origin: str
    values: Mapping[str, Any]
    open_file: Path | None = None


def load_config(file: Path | None = None, options: Mapping[str, Any] | None = None) -> StreamsConfig:
    """Loads the settings of an application.

    Raises:
        ConfigError: A setting is unknown, invalid or missing; the message names each.
    """
    layers = config_layers(file, options)
    warn_of_open_files(layers)
    return config_of(layers)


def config_from(
    config: StreamsConfig | Mapping[str, Any] | str | Path | None, settings: Mapping[str, Any]
) -> StreamsConfig:
    """Makes the settings that a Python program gives: complete ones, a mapping, or the path of a TOML file, and further ones.

    Raises:
        ConfigError: A setting is unknown, invalid or missing; the message names each.
    """
    if isinstance(config, StreamsConfig):
        if not settings:
            return config
        config = {name: getattr(config, name) for name in config.model_fields_set}
    if isinstance(config, str | Path):
        return load_config(Path(config), settings)
    return load_config(None, {**(config or {}), **settings})


def config_layers(
    file: Path | None, options: Mapping[str, Any] | None, defaults: Mapping[str, Any] = MappingProxyType({})
) -> list[Layer]:
    """The sources of the settings; later ones take precedence.

    Raises:
        ConfigError: The file cannot be read.
    """
    given = {name: value for name, value in (options or {}).items() if value is not None}
    return [
        Layer("default", defaults),
        *([] if file is None else [_from_file(file)]),
        Layer("environment", _from_environment()),
        Layer("command line", given),
    ]


def config_of(layers: Sequence[Layer]) -> StreamsConfig:
    """Combines the settings from several sources."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= layer.values
    for table in ("kafka", "spark"):
        parts = [layer.values.get(table) or {} for layer in layers]
        if all(isinstance(part, Mapping) for part in parts):
            merged[table] = {key: str(value) for part in parts for key, value in part.items()}
    try:
        return StreamsConfig(**merged)
    except ValidationError as error:
        lines = [_wrong(found) for found in error.errors(include_input=False)]
        raise ConfigError("bad settings:\n" + "\n".join(lines)) from None


def _wrong(found: ErrorDetails) -> str:
    """Makes one line about a setting that pydantic rejects."""
    name = ".".join(map(str, found["loc"])) or "settings"
    if found["type"] == "extra_forbidden":
        here = OF_THE_APPLICATION.get(name.replace(".", "_"))
        hint = did_you_mean(name, StreamsConfig.model_fields) if here is None else f" Here {here}."
        return f"  {name}: there is no such setting.{hint}"
    if found["type"] == "missing":
        return f"  {name}: it must be given"
    return f"  {name}: {found['msg'].removeprefix('Value error, ')}"


def warn_of_open_files(layers: Iterable[Layer]) -> None:
    """Warns of files with secrets that other users can read."""
    for file in (layer.open_file for layer in layers if layer.open_file is not None):
        log.warning("%s has secrets that other users can read: chmod 600 %s", file, file)


def _from_file(file: Path) -> Layer:
    try:
        found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        is_open = file.stat().st_mode & 0o077 and any(secret_values(_flat(found)))
        return Layer(str(file), found, file if is_open else None)
    except FileNotFoundError:
        nearby = (path.name for path in file.absolute().parent.glob("*.toml"))
        raise ConfigError(f"settings file {file} does not exist.{did_you_mean(file.name, nearby)}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"settings file {file} is not valid TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"settings file {file} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error


def _flat(table: Mapping[str, Any], front: str = "") -> dict[str, Any]:
    """Settings by their full names, also the settings of tables within tables."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= _flat(value, f"{front}{name}.") if isinstance(value, Mapping) else {f"{front}{name}": value}
    return found


def _from_environment() -> dict[str, Any]:
    """Reads the settings from STREAMS_… variables, as pydantic-settings does; tables are JSON."""
    source = StreamsConfig.model_config
    variables = EnvSettingsSource(
        StreamsConfig,
        env_prefix=str(source.get("env_prefix", "")),
        env_nested_delimiter=source.get("env_nested_delimiter"),
    )
    try:
        return variables()
    except SettingsError:
        # Neither the text nor a cause that contains it is shown, because it may be a password.
        raise ConfigError(
            'STREAMS_KAFKA or STREAMS_SPARK is not a JSON object of texts, such as {"security.protocol": "SASL_SSL"}'
        ) from None


# --- The documentation of the settings: a reference page, a commented TOML file, and the origin of each value.
#
# Everything is generated from the fields of `StreamsConfig`, so that nothing is described twice.

_WIDTH = 110
_NAMES: Mapping[Any, str] = {bool: "true or false", int: "number", str: "text", Path: "path"}


@dataclass(frozen=True)
class Setting:
    """One setting in the reference.

    Attributes:
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


def schema() -> dict[str, Any]:
    """The JSON schema of a settings file, with which editors complete and check it."""
    found = StreamsConfig.model_json_schema()
    # A setting that the file lacks may come from the environment or an option.
    return {"$schema": "http://json-schema.org/draft-07/schema#"} | {
        name: value for name, value in found.items() if name != "required"
    }


def toml(values: Mapping[str, Any], given: Mapping[str, str]) -> str:
    """Makes a TOML file of all settings, with comments. Settings that are not given are commented out."""
    tables = ("kafka", "spark")
    # A table ends the top level of a TOML file, so tables come last.
    ordered = sorted(settings(), key=lambda one: one.name in tables)
    return "\n".join(_toml_entry(one, values[one.name], given.get(one.name)) for one in ordered)


def explained(values: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    """Makes a line for each setting: its effective value, and the value's origin."""
    return [f"{name} = {toml_value(value)}  # {given.get(name, 'default')}" for name, value in values.items()]


def origins(layers: Sequence[Layer]) -> dict[str, str]:
    """The origin of each setting that is set. A table has the origins of all layers that contribute to it."""
    found: dict[str, str] = {}
    for layer in layers:
        for name, value in layer.values.items():
            table = isinstance(value, Mapping)
            if table and not value:
                continue
            found[name] = f"{found[name]}, {layer.origin}" if table and name in found else layer.origin
    return found


def toml_value(value: Any) -> str:
    """A value in TOML. TOML has no null, so None becomes the word `none`, which settings accept."""
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
    """A type in words. Whether a setting may be unset is visible from its default."""
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

These are all settings of an application. To get them as a commented TOML file, run `streams config`. To see the effective values
and where each one comes from, run `streams config TARGET --explain`.

<!-- Generated from `streams/config/settings.py` by `streams config --format markdown`; a test compares. -->

You can set them in several places. Later places take precedence:

| place | how |
|---|---|
| defaults | the table below |
| a TOML file | `--config FILE`: settings at the top level; tables `[kafka]` and `[spark]` |
| the environment | `STREAMS_` and the name in upper case, such as `STREAMS_TASKS`; tables as JSON, such as `STREAMS_KAFKA` |
| options | `--set NAME=VALUE` for any setting, `--set spark.NAME=VALUE` for Spark's; common ones have a separate option, too |
| Kafka properties | `-X KEY=VALUE` (`--property`), or a Java properties file (`--properties-file`): the table `kafka` |

From Python: `load_config(Path("streams.toml"), {"tasks": 4})`. Write durations in milliseconds, or with a unit: `500ms`, `5s`,
`10m`, `1h30m`, `7d`. To unset an optional setting, use `none`.

`--bad-records POLICY` is short for the four policies `deserialization`, `processing`, `production` and `future`.
"""
