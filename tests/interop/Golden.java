import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.TreeSet;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.SessionStoreWithHeaders;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.TimestampedWindowStoreWithHeaders;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Writes records, and the changelogs and results that Kafka Streams makes of them, as lines of JSON: a file of tests/golden. Compile
 * and run it with the jars of kafka-streams, kafka-clients, RocksDB and kafka-streams-test-utils 4.3.1:
 * java Golden KIND [DEFAULT or HEADERS: the format of stores, dsl.store.format]. The kinds and their files:
 * joins: left and outer joins of streams, kafka-streams-stream-joins.jsonl; both formats write the same.
 * grace: joins of a stream with a table with a grace period, kafka-streams-grace.jsonl; both formats write the same.
 * headers: stores whose rows have headers in the format HEADERS, kafka-streams-headers.jsonl.
 */
public final class Golden {
    private static final Serde<String> TEXT = Serdes.String();
    /** Topic, key, value, and seconds after the start. Some are equal in time and key, match later, or become due. */
    private static final String[][] JOINED = {
        {"in-l", "a", "l1", "0"}, {"in-l", "a", "l2", "0"}, {"in-r", "b", "r1", "1"}, {"in-l", "c", "l3", "2"},
        {"in-r", "b", "r2", "1"}, {"in-r", "a", "r3", "5"}, {"in-l", "d", "l4", "6"}, {"in-l", "d", "l5", "6"},
        {"in-r", "e", "r4", "30"}, {"in-l", "b", "l6", "31"}, {"in-r", "f", "r5", "40"}, {"in-l", "", "l7", "41"},
        {"in-l", "g", "", "42"}, {"in-r", "h", "r6", "42"}, {"in-l", "d", "l8", "20"}, {"in-l", "h", "l9", "43"},
    };
    /** Some wait for the table, are equal in time and key, find no row, are late for the buffer, or still wait at the end. */
    private static final String[][] WAITING = {
        {"in-t", "a", "t1", "0"}, {"in-s", "a", "s1", "5"}, {"in-s", "a", "s2", "5"}, {"in-t", "a", "t2", "4"},
        {"in-s", "b", "s3", "3"}, {"in-s", "c", "s4", "20"}, {"in-s", "a", "s5", "12"}, {"in-s", "a", "s6", "2"},
        {"in-t", "c", "t3", "19"}, {"in-s", "c", "", "21"}, {"in-s", "a", "s7", "30"}, {"in-s", "", "s8", "30"},
        {"in-s", "c", "s9", "29"}, {"in-s", "c", "s10", "29"},
    };
    /** Rows of tables, some of which are changed and deleted. */
    private static final String[][] ROWS = {
        {"in-t", "a", "t1", "0"}, {"in-t", "b", "t2", "1"}, {"in-t", "a", "t3", "2"}, {"in-t", "b", "", "3"},
        {"in-s", "a", "s1", "4"}, {"in-s", "a", "s2", "5"}, {"in-s", "b", "s3", "6"}, {"in-t", "c", "t4", "7"},
    };
    private static final long START = 1_795_799_460_000L;

    private Golden() {}

    private static void join(StreamsBuilder builder, boolean outer, String name) {
        KStream<String, String> left = builder.stream("in-l", Consumed.with(TEXT, TEXT));
        KStream<String, String> right = builder.stream("in-r", Consumed.with(TEXT, TEXT));
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5));
        StreamJoined<String, String, String> how = StreamJoined.with(TEXT, TEXT, TEXT).withName(name).withStoreName(name);
        KStream<String, String> joined = outer
            ? left.outerJoin(right, (one, other) -> one + "+" + other, windows, how)
            : left.leftJoin(right, (one, other) -> one + "+" + other, windows, how);
        joined.to("out", Produced.with(TEXT, TEXT));
    }

    private static void joinLater(StreamsBuilder builder, boolean left, String name) {
        KTable<String, String> table = builder.table("in-t", Consumed.with(TEXT, TEXT), Materialized.<String, String>as(
            Stores.persistentVersionedKeyValueStore("t", Duration.ofMinutes(30))).withKeySerde(TEXT).withValueSerde(TEXT));
        KStream<String, String> stream = builder.stream("in-s", Consumed.with(TEXT, TEXT));
        Joined<String, String, String> how = Joined.with(TEXT, TEXT, TEXT, name, Duration.ofSeconds(10));
        KStream<String, String> joined = left
            ? stream.leftJoin(table, (one, other) -> one + "+" + other, how)
            : stream.join(table, (one, other) -> one + "+" + other, how);
        joined.to("out", Produced.with(TEXT, TEXT));
    }

    private static Materialized<String, String, KeyValueStore<Bytes, byte[]>> table(String name) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(TEXT).withValueSerde(TEXT);
    }

    private static void stores(StreamsBuilder builder) {
        KTable<String, String> table = builder.table("in-t", Consumed.with(TEXT, TEXT), table("table"));
        table.mapValues(value -> value + "!", table("mapped"));
        table.groupBy((key, value) -> KeyValue.pair(value, value), Grouped.with("by", TEXT, TEXT))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("grouped").withKeySerde(TEXT));
        KStream<String, String> stream = builder.stream("in-s", Consumed.with(TEXT, TEXT));
        stream.toTable(table("made"));
        KGroupedStream<String, String> byKey = stream.groupByKey(Grouped.with(TEXT, TEXT));
        byKey.reduce((all, value) -> all + value, table("reduced"));
        byKey.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows").withKeySerde(TEXT));
        byKey.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)))
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions").withKeySerde(TEXT));
        stream.join(builder.stream("in-r", Consumed.with(TEXT, TEXT)), (one, other) -> one + other,
            JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)),
            StreamJoined.with(TEXT, TEXT, TEXT).withName("ij").withStoreName("ij"));
        stream.process(Storing::new, "own", "own-windows", "own-sessions", "plain", "times", "plain-windows", "time-windows",
            "plain-sessions");
    }

    /** Adds the stores of `Storing`: three with headers, and those of the same kinds without. */
    private static void ownStores(StreamsBuilder builder) {
        Duration minute = Duration.ofMinutes(1);
        builder.addStateStore(Stores.timestampedKeyValueStoreWithHeadersBuilder(
            Stores.persistentTimestampedKeyValueStoreWithHeaders("own"), TEXT, TEXT));
        builder.addStateStore(Stores.timestampedWindowStoreWithHeadersBuilder(
            Stores.persistentTimestampedWindowStoreWithHeaders("own-windows", minute, minute, false), TEXT, TEXT));
        builder.addStateStore(Stores.sessionStoreWithHeadersBuilder(
            Stores.persistentSessionStoreWithHeaders("own-sessions", minute), TEXT, TEXT));
        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("plain"), TEXT, TEXT));
        builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
            Stores.persistentTimestampedKeyValueStore("times"), TEXT, TEXT));
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore("plain-windows", minute, minute, false), TEXT, TEXT));
        builder.addStateStore(Stores.timestampedWindowStoreBuilder(
            Stores.persistentTimestampedWindowStore("time-windows", minute, minute, false), TEXT, TEXT));
        builder.addStateStore(Stores.sessionStoreBuilder(Stores.persistentSessionStore("plain-sessions", minute), TEXT, TEXT));
    }

    /** Puts each record into stores of all kinds; those with headers get another one than the record's. */
    private static final class Storing extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            RecordHeaders headers = new RecordHeaders();
            headers.add("kept", record.value().getBytes(StandardCharsets.UTF_8));
            headers.add("null", null);
            long at = record.timestamp();
            ValueTimestampHeaders<String> row = ValueTimestampHeaders.make(record.value(), at, headers);
            Windowed<String> session = new Windowed<>(record.key(), new SessionWindow(at - 1, at));
            context().<TimestampedKeyValueStoreWithHeaders<String, String>>getStateStore("own").put(record.key(), row);
            context().<TimestampedWindowStoreWithHeaders<String, String>>getStateStore("own-windows").put(record.key(), row, at);
            context().<SessionStoreWithHeaders<String, String>>getStateStore("own-sessions")
                .put(session, AggregationWithHeaders.make(record.value(), headers));
            ValueAndTimestamp<String> timed = ValueAndTimestamp.make(record.value(), at);
            context().<KeyValueStore<String, String>>getStateStore("plain").put(record.key(), record.value());
            context().<TimestampedKeyValueStore<String, String>>getStateStore("times").put(record.key(), timed);
            context().<WindowStore<String, String>>getStateStore("plain-windows").put(record.key(), record.value(), at);
            context().<TimestampedWindowStore<String, String>>getStateStore("time-windows").put(record.key(), timed, at);
            context().<SessionStore<String, String>>getStateStore("plain-sessions").put(session, record.value());
        }
    }

    private static String quoted(String text) {
        return text == null ? "null" : "\"" + text + "\"";
    }

    private static String hex(byte[] data) {
        return quoted(data == null ? null : HexFormat.of().formatHex(data));
    }

    private static StreamsBuilder topology(String kind, int number, Properties settings) {
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(settings)));
        switch (kind) {
            case "joins" -> join(builder, number == 1, number == 1 ? "oj" : "lj");
            case "grace" -> joinLater(builder, number == 1, number == 1 ? "gl" : "gi");
            default -> {
                ownStores(builder);
                stores(builder);
            }
        }
        return builder;
    }

    private static void play(String kind, int number, String name, Properties settings, PrintStream out) {
        String[][] records = kind.equals("joins") ? JOINED : kind.equals("grace") ? WAITING : ROWS;
        try (TopologyTestDriver driver =
                new TopologyTestDriver(topology(kind, number, settings).build(settings), settings, Instant.ofEpochMilli(START))) {
            for (String[] one : records) {
                String value = one[2].isEmpty() ? null : one[2];
                long at = START + 1000 * Long.parseLong(one[3]);
                RecordHeaders headers = new RecordHeaders();
                headers.add("trace", one[2].getBytes(StandardCharsets.UTF_8));
                driver.createInputTopic(one[0], new StringSerializer(), new StringSerializer())
                    .pipeInput(new TestRecord<>(one[1], value, headers, Instant.ofEpochMilli(at)));
                if (number == 0) {
                    out.printf("{\"in\": %s, \"k\": %s, \"v\": %s, \"t\": %d}%n", quoted(one[0]), quoted(one[1]), quoted(value), at);
                }
            }
            for (String topic : new TreeSet<>(driver.producedTopicNames())) {
                TestOutputTopic<byte[], byte[]> found =
                    driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                for (TestRecord<byte[], byte[]> record : found.readRecordsToList()) {
                    StringJoiner headers = new StringJoiner(", ", "[", "]");
                    for (Header header : record.headers()) {
                        headers.add("[" + quoted(header.key()) + ", " + hex(header.value()) + "]");
                    }
                    out.printf("{\"join\": %s, \"topic\": %s, \"k\": %s, \"v\": %s, \"t\": %d, \"h\": %s}%n", quoted(name),
                        quoted(topic), hex(record.key()), hex(record.value()), record.timestamp(), headers);
                }
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String kind = arguments[0];
        String[] names = kind.equals("joins") ? new String[] {"lj", "oj"}
            : kind.equals("grace") ? new String[] {"gi", "gl"} : new String[] {"stores"};
        for (int number = 0; number < names.length; number++) {
            Properties settings = new Properties();
            settings.put("application.id", "x");
            settings.put("bootstrap.servers", "none:1");
            settings.put("state.dir", Files.createTempDirectory("golden").toString());
            settings.put("statestore.cache.max.bytes", "0");
            settings.put("dsl.store.format", arguments.length > 1 ? arguments[1] : kind.equals("headers") ? "HEADERS" : "DEFAULT");
            settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
            play(kind, number, names[number], settings, out);
        }
    }
}
