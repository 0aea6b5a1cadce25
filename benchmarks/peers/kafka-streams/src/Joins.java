import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;

/** Joins of streams with streams and with tables. */
final class Joins {
    private static final Serde<String> KEY = Serdes.String();
    private static final Serde<Values.WholeEvent> EVENT = Json.of(Values.WholeEvent.class);
    private static final Serde<Values.Reading> READING = Json.of(Values.Reading.class);

    private Joins() {}

    static void inner(StreamsBuilder builder, Config config) {
        events(builder, config, "left")
                .join(
                        events(builder, config, "right"),
                        (left, right) -> new Values.Pair(left.n(), right.n()),
                        windows(config),
                        StreamJoined.with(KEY, EVENT, EVENT))
                .to(config.topic("out"), Produced.with(KEY, Json.of(Values.Pair.class)));
    }

    static void left(StreamsBuilder builder, Config config) {
        events(builder, config, "left")
                .leftJoin(
                        events(builder, config, "right"),
                        (left, right) -> new Values.Pair(left.n(), right == null ? null : right.n()),
                        windows(config),
                        StreamJoined.with(KEY, EVENT, EVENT))
                .to(config.topic("out"), Produced.with(KEY, Json.of(Values.Pair.class)));
    }

    static void streamTable(StreamsBuilder builder, Config config) {
        KTable<String, Values.Version> table = table(builder, config, "table", Values.Version.class);
        builder.stream(config.topic("events"), Consumed.with(KEY, Json.of(Values.Event.class)))
                .leftJoin(table, (event, row) -> new Values.Versioned(event.n(), row == null ? null : row.version()))
                .to(config.topic("out"), Produced.with(KEY, Json.of(Values.Versioned.class)));
    }

    static void tableFill(StreamsBuilder builder, Config config) {
        KTable<String, Values.WholeEvent> rows = table(builder, config, "rows", Values.WholeEvent.class);
        builder.stream(config.topic("probes"), Consumed.with(KEY, Json.of(Values.Probe.class)))
                .join(rows, (probe, row) -> new Values.Answer(probe.p(), row.n()))
                .to(config.topic("out"), Produced.with(KEY, Json.of(Values.Answer.class)));
    }

    static void enrich(StreamsBuilder builder, Config config) {
        KTable<String, Values.Group> table = table(builder, config, "table", Values.Group.class);
        Serde<Values.GroupValue> value = Json.of(Values.GroupValue.class);
        KTable<Windowed<String>, Values.Sum> sums = builder
                .stream(config.topic("events"), Consumed.with(KEY, READING))
                .join(table, (reading, row) -> new Values.GroupValue(row.group(), reading.v()[0]))
                .groupBy((device, joined) -> joined.group(), Grouped.with(KEY, value))
                .windowedBy(Windows.windows(config))
                .aggregate(
                        () -> Values.Sum.NONE,
                        (group, joined, sum) -> sum.plus(joined.value()),
                        Materialized.with(KEY, Json.of(Values.Sum.class)));
        Windows.write(sums, config, "window_ms");
    }

    private static KStream<String, Values.WholeEvent> events(StreamsBuilder builder, Config config, String role) {
        return builder.stream(config.topic(role), Consumed.with(KEY, EVENT));
    }

    private static <T> KTable<String, T> table(StreamsBuilder builder, Config config, String role, Class<T> type) {
        return builder.table(
                config.topic(role),
                Consumed.with(KEY, Json.of(type)),
                Materialized.<String, T, KeyValueStore<Bytes, byte[]>>as(role));
    }

    private static JoinWindows windows(Config config) {
        return JoinWindows.ofTimeDifferenceAndGrace(config.duration("after_ms"), config.duration("grace_ms"))
                .before(config.duration("before_ms"));
    }
}
