"""Names that users may expect in the package itself: classes of Kafka Streams, of other libraries, and of other modules here."""

from __future__ import annotations

_FUNCTION = "a plain function or lambda is taken wherever Kafka Streams has an interface for it"
_FROM_TESTING = "it is in streams.testing: from streams.testing import {0}"
_APPLICATION = "StreamsBuilder() begins a topology"

PACKAGE: dict[str, str] = {
    "StreamsConfig": "settings go into streams.toml, the environment or `streams run --set`",
    **dict.fromkeys(("KeyValue", "KeyValuePair"), "a pair is a tuple here: (key, value)"),
    **dict.fromkeys(
        (
            "Aggregator",
            "ForeachAction",
            "Initializer",
            "KeyValueMapper",
            "Merger",
            "Predicate",
            "Punctuator",
            "Reducer",
            "StreamPartitioner",
            "TopicNameExtractor",
            "ValueJoiner",
            "ValueJoinerWithKey",
            "ValueMapper",
            "ValueMapperWithKey",
        ),
        _FUNCTION,
    ),
    "ProcessorSupplier": "a subclass of Processor is its own supplier: process(MyProcessor)",
    **dict.fromkeys(("Transformer", "TransformerSupplier"), "here it is Processor, for KStream.process"),
    "ValueTransformerWithKey": "here it is ValueTransformer",
    "FixedKeyProcessor": "here it is Processor, for KStream.process_values",
    "FixedKeyRecord": "here it is Record",
    **{name: _FROM_TESTING.format(name) for name in ("TopologyTestDriver", "TestInputTopic", "TestOutputTopic")},
    "MockProcessorContext": _FROM_TESTING.format("MockProcessorContext"),
    **dict.fromkeys(("StringSerializer", "StringDeserializer"), "here it is StringSerde, which does both"),
    **dict.fromkeys(("IntegerSerde", "IntSerde"), "here it is Int32Serde, or Int64Serde for Java's long"),
    "LongSerde": "here it is Int64Serde",
    "ShortSerde": "here it is Int16Serde",
    "DoubleSerde": "here it is Float64Serde",
    "FloatSerde": "here it is Float32Serde, or Float64Serde for Java's double",
    "ByteArraySerde": "here it is BytesSerde",
    "ByteBufferSerde": "here it is BytesSerde",
    "UUIDSerde": "here it is UuidSerde",
    "JSONSerde": "here it is JsonSerde",
    **dict.fromkeys(("SpecificAvroSerde", "GenericAvroSerde"), "here it is AvroSerde"),
    "KafkaProtobufSerde": "here it is ProtobufSerde",
    "KafkaJsonSchemaSerde": "here it is JsonSchemaSerde",
    "AutoOffsetReset": "here it is text: Consumed(offset_reset='earliest')",
    "Duration": "durations are datetime.timedelta, or whole milliseconds",
    "StreamBuilder": "here it is StreamsBuilder",
    "KStreamBuilder": "here it is StreamsBuilder",
    "App": _APPLICATION,
    "Application": _APPLICATION,
    "Dataflow": _APPLICATION,
    "TumblingWindows": "here it is TimeWindows.of_size_with_no_grace(size)",
    "HoppingWindows": "here it is TimeWindows.of_size_with_no_grace(size).advance_by(step)",
}
"""Name -> what to write instead."""
