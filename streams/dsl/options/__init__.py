"""Options of operators: names, serdes, and how state is stored.

All are small frozen classes with Kafka Streams' names. Positional arguments are recognised by their types (a string is the name,
the first serde is that of keys, the second that of values)::

    Consumed(value_serde=JsonSerde(), timestamp_extractor=timestamp_field("time"))
    Grouped("by-region", StringSerde(), JsonSerde())
    Materialized("delays", retention=timedelta(days=2), caching=False)

An option that is left out comes from upstream if known there, otherwise from the builder's defaults.
"""

from streams.dsl.options.base import Option
from streams.dsl.options.names import Named, NameLike
from streams.dsl.options.retry import Retry
from streams.dsl.options.tables import Joined, Materialized, StreamJoined
from streams.dsl.options.topics import Consumed, Extractor, Grouped, Produced, Repartitioned

__all__ = [
    "Consumed",
    "Extractor",
    "Grouped",
    "Joined",
    "Materialized",
    "NameLike",
    "Named",
    "Option",
    "Produced",
    "Repartitioned",
    "Retry",
    "StreamJoined",
]
