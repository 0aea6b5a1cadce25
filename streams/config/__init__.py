"""Settings of an application: definitions (`settings`), sources (`loading`) and documentation (`reference`)."""

from streams.config.loading import Layer, config_layers, config_of, load_config, warn_of_open_files
from streams.config.settings import MESSAGE_MAX_BYTES, ErrorPolicy, Execution, Mode, StreamsConfig

__all__ = [
    "MESSAGE_MAX_BYTES",
    "ErrorPolicy",
    "Execution",
    "Layer",
    "Mode",
    "StreamsConfig",
    "config_layers",
    "config_of",
    "load_config",
    "warn_of_open_files",
]
