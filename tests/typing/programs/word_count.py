"""Text in, counts out: keys and values are known from the serdes to the sink."""

from typing_extensions import assert_type

from streams import Consumed, Int64Serde, KStream, KTable, Materialized, Produced, StreamsBuilder, StringSerde

builder = StreamsBuilder()
lines = builder.stream("lines", Consumed(StringSerde(), StringSerde()))
assert_type(lines, KStream[str, str])
words = lines.flat_map_values(lambda line: line.lower().split())
assert_type(words, KStream[str, str])
counts = words.group_by(lambda word: word).count(Materialized(name="counts"))
assert_type(counts, KTable[str, int])
counts.to_stream().to("counts", Produced(StringSerde(), Int64Serde()))
counts.to_stream().to("counts-again", value_serde=Int64Serde())
counts.filter(lambda word, count: count > len(word)).to_stream("long").to("long")
words.map(lambda key, word: (len(word), word)).group_by_key(key_serde=Int64Serde()).count("by-length")
words.filter_not(str.isdigit).peek(lambda key, word: None).foreach(print)

untyped = builder.stream("anything").map_values(lambda value: value["field"]).filter(lambda key, value: value > key)
untyped.group_by_key().count().to_stream().to("out")
