"""Kafka Streams for Spark, in Python.

This package has every name that a program needs to declare and run a topology. Its subpackages follow the flow of data: `dsl`
builds a `topology`, which `application` and `spark` plan and run; `operators` process records for `runtime`; and `testing`
runs a topology without Spark and Kafka.

The names are imported when the first of them is used (PEP 562), for the reason in `streams.api`.
"""

# ruff: noqa: F403 - the check must run before the imports that it protects
import typing as _typing

from streams import shadowing as _shadowing

_shadowing.check_state_package()

if _typing.TYPE_CHECKING:
    from streams.api import *
    from streams.driver.kafka_streams import KafkaStreams as KafkaStreams
    from streams.version import __version__ as __version__
else:  # a type checker would believe that every name exists
    from streams.migration_hints import names_of_package as _names_of_package

    __getattr__, __dir__ = _names_of_package(
        __name__, "streams.api", {"KafkaStreams": "streams.driver.kafka_streams", "__version__": "streams.version"}
    )
