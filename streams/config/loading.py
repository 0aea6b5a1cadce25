"""The sources of settings: defaults, a TOML file, the environment (`STREAMS_...`) and options; later ones take precedence."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, SettingsError

from streams.config.settings import StreamsConfig
from streams.errors import ConfigError
from streams.spelling.settings import OF_THE_APPLICATION
from streams.suggest import did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Layer:
    """Settings from one place.

    Attributes:
        origin: A description of the place.
        values: Settings by name, not validated yet.
    """

    origin: str
    values: Mapping[str, Any]


def load_config(
    file: Path | None = None, options: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None
) -> StreamsConfig:
    """Loads the settings of an application.

    Raises:
        ConfigError: A setting is unknown, invalid or missing; the message names each.
    """
    return config_of(config_layers(file, options, defaults))


def config_from(
    config: StreamsConfig | Mapping[str, Any] | str | Path | None, settings: Mapping[str, Any]
) -> StreamsConfig:
    """The settings that a Python program gives: complete ones, a mapping, or the path of a TOML file, and further ones.

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
    file: Path | None, options: Mapping[str, Any] | None, defaults: Mapping[str, Any] | None
) -> list[Layer]:
    """The places that settings come from; later ones take precedence.

    Raises:
        ConfigError: The file cannot be read.
    """
    given = {name: value for name, value in (options or {}).items() if value is not None}
    return [
        Layer("default", defaults or {}),
        *([] if file is None else [Layer(str(file), _from_file(file))]),
        Layer("environment", _from_environment()),
        Layer("command line", given),
    ]


def config_of(layers: Sequence[Layer]) -> StreamsConfig:
    """The settings from several layers combined.

    Raises:
        ConfigError: A setting is unknown, invalid or missing; the message names each.
    """
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
    """One line about a setting that pydantic rejects."""
    name = ".".join(map(str, found["loc"])) or "settings"
    if found["type"] == "extra_forbidden":
        here = OF_THE_APPLICATION.get(name.replace(".", "_"))
        hint = did_you_mean(name, StreamsConfig.model_fields) if here is None else f" Here {here}."
        return f"  {name}: there is no such setting.{hint}"
    if found["type"] == "missing":
        return f"  {name}: it must be given"
    return f"  {name}: {found['msg'].removeprefix('Value error, ')}"


def _from_file(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        return found
    except FileNotFoundError:
        nearby = (path.name for path in file.absolute().parent.glob("*.toml"))
        raise ConfigError(f"settings file {file} does not exist.{did_you_mean(file.name, nearby)}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"settings file {file} is not valid TOML: {error}") from error


def _from_environment() -> dict[str, Any]:
    """Settings from STREAMS_… variables, as pydantic-settings reads them; tables as JSON."""
    source = StreamsConfig.model_config
    variables = EnvSettingsSource(
        StreamsConfig,
        env_prefix=str(source.get("env_prefix", "")),
        env_nested_delimiter=source.get("env_nested_delimiter"),
    )
    try:
        return variables()
    except SettingsError:
        # Neither the text nor a cause that contains it is shown: it may be a password.
        raise ConfigError(
            'STREAMS_KAFKA or STREAMS_SPARK is not a JSON object of texts, such as {"security.protocol": "SASL_SSL"}'
        ) from None
