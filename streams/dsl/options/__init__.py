"""Options of operators besides their functions: names, serdes, how their state is stored.

Small frozen classes with Kafka Streams' names. Arguments have names; those without one are told apart by their types (text is the
name, the first serde that of keys, the next one that of values)::

    Consumed(value_serde=JsonSerde(), timestamp_extractor=timestamp_field("time"))
    Grouped("by-region", StringSerde(), JsonSerde())
    Materialized("delays", retention=timedelta(days=2), caching=False)

Whatever is left out is taken from upstream where that is known, else from the builder's defaults.
"""

from streams.dsl.options.base import Option
from streams.dsl.options.names import Named, NameLike
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
    "StreamJoined",
]
