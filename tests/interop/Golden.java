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
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Writes the records below, and the changelogs and results of left and outer joins of streams of them, as lines of JSON: the file
 * tests/golden/kafka-streams-stream-joins.jsonl. Compile and run it with the jars of kafka-streams, kafka-clients, RocksDB and
 * kafka-streams-test-utils 4.3.1: java Golden [DEFAULT or HEADERS: the format of stores, dsl.store.format; both write the same].
 */
public final class Golden {
    private static final Serde<String> TEXT = Serdes.String();
    /** Topic, key, value, and seconds after the start. Some are equal in time and key, match later, or become due. */
    private static final String[][] RECORDS = {
        {"in-l", "a", "l1", "0"}, {"in-l", "a", "l2", "0"}, {"in-r", "b", "r1", "1"}, {"in-l", "c", "l3", "2"},
        {"in-r", "b", "r2", "1"}, {"in-r", "a", "r3", "5"}, {"in-l", "d", "l4", "6"}, {"in-l", "d", "l5", "6"},
        {"in-r", "e", "r4", "30"}, {"in-l", "b", "l6", "31"}, {"in-r", "f", "r5", "40"}, {"in-l", "", "l7", "41"},
        {"in-l", "g", "", "42"}, {"in-r", "h", "r6", "42"}, {"in-l", "d", "l8", "20"}, {"in-l", "h", "l9", "43"},
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

    private static String quoted(String text) {
        return text == null ? "null" : "\"" + text + "\"";
    }

    private static String hex(byte[] data) {
        return quoted(data == null ? null : HexFormat.of().formatHex(data));
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (boolean outer : new boolean[] {false, true}) {
            String name = outer ? "oj" : "lj";
            Properties settings = new Properties();
            settings.put("application.id", "x");
            settings.put("bootstrap.servers", "none:1");
            settings.put("state.dir", Files.createTempDirectory("golden").toString());
            settings.put("statestore.cache.max.bytes", "0");
            settings.put("dsl.store.format", arguments.length > 0 ? arguments[0] : "DEFAULT");
            settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
            StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(settings)));
            join(builder, outer, name);
            try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(settings), settings, Instant.ofEpochMilli(START))) {
                for (String[] one : RECORDS) {
                    String value = one[2].isEmpty() ? null : one[2];
                    long at = START + 1000 * Long.parseLong(one[3]);
                    RecordHeaders headers = new RecordHeaders();
                    headers.add("trace", one[2].getBytes(StandardCharsets.UTF_8));
                    driver.createInputTopic(one[0], new StringSerializer(), new StringSerializer())
                        .pipeInput(new TestRecord<>(one[1], value, headers, Instant.ofEpochMilli(at)));
                    if (!outer) {
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
    }
}
