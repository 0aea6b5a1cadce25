import java.nio.ByteBuffer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** A filter with a map (B1), and ShuffleBench (B3), whose state is a counter. */
final class Stateless {
    private static final long RULES = 1_000_000;
    private static final long MATCHING = 200_000;

    private Stateless() {}

    static void passthrough(StreamsBuilder builder, Config config) {
        builder.stream(config.topic("events"), Consumed.with(Serdes.String(), Json.of(Values.Reading.class)))
                .filter((key, reading) -> reading.s() % 2 == 0)
                .mapValues(reading -> new Values.Fahrenheit(reading.s(), reading.v()[0] * 1.8 + 32))
                .to(config.topic("out"), Produced.with(Serdes.String(), Json.of(Values.Fahrenheit.class)));
    }

    static void shuffle(StreamsBuilder builder, Config config) {
        long consumers = config.number("consumers");
        builder.stream(config.topic("events"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .mapValues(bytes -> ByteBuffer.wrap(bytes).getLong())
                .filter((key, h) -> Long.remainderUnsigned(h, RULES) < MATCHING)
                .selectKey((key, h) -> named(Long.remainderUnsigned(Long.divideUnsigned(h, RULES), consumers)))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
                .count(Materialized.with(Serdes.String(), Serdes.Long()))
                .toStream()
                .mapValues(Values.Count::new)
                .to(config.topic("out"), Produced.with(Serdes.String(), Json.of(Values.Count.class)));
    }

    /** {@code c-0000123}; String.format would cost more than the rest of the program. */
    static String named(long consumer) {
        String digits = Long.toString(consumer);
        return "c-" + "0000000".substring(digits.length()) + digits;
    }
}
