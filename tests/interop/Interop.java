import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.WindowStore;

/** The same topology as tests/interop/program.py; runs until SIGTERM. Arguments: bootstrap servers, application id, state folder. */
public final class Interop {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();
    private static final Serde<JsonNode> OBJECT = Serdes.serdeFrom(
        (topic, value) -> value == null ? null : written(value), (topic, data) -> data == null ? null : read(data));
    private static final Duration MINUTE = Duration.ofMinutes(1);
    private static final Duration DAY = Duration.ofDays(1);
    private static final Duration GRACE = Duration.ofSeconds(10);

    private Interop() {}

    private static byte[] written(JsonNode value) {
        try {
            return JSON.writeValueAsBytes(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static JsonNode read(byte[] data) {
        try {
            return JSON.readTree(data);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static <K, V> Materialized<K, V, KeyValueStore<Bytes, byte[]>> table(String name, Serde<K> keys, Serde<V> values) {
        return Materialized.<K, V, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(keys).withValueSerde(values);
    }

    /** Keeps the last value of each key with a header, and says the header that it had. */
    private static final class Keeping extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            TimestampedKeyValueStoreWithHeaders<String, String> kept = context().getStateStore("kept");
            ValueTimestampHeaders<String> before = kept.get(record.key());
            String said = before == null ? "null" : new String(before.headers().lastHeader("last").value(), StandardCharsets.UTF_8);
            RecordHeaders headers = new RecordHeaders();
            headers.add("last", record.value().getBytes(StandardCharsets.UTF_8)).add("none", null);
            kept.put(record.key(), ValueTimestampHeaders.make(record.value(), record.timestamp(), headers));
            context().forward(record.withValue(record.value() + "/" + said));
        }
    }

    private static StreamsBuilder topology(String app) {
        StreamsBuilder builder = new StreamsBuilder();
        String out = app + "-out-";
        Consumed<String, String> texts = Consumed.with(TEXT, TEXT);
        Grouped<String, String> byKey = Grouped.with(TEXT, TEXT);
        builder.stream("in-kv", texts).groupByKey(byKey).count(table("kv-count", TEXT, LONG))
            .toStream().to(out + "kv", Produced.with(TEXT, LONG));
        builder.addStateStore(Stores.timestampedKeyValueStoreWithHeadersBuilder(
            Stores.persistentTimestampedKeyValueStoreWithHeaders("kept"), TEXT, TEXT));
        builder.stream("in-kv", texts).process(Keeping::new, "kept").to(out + "kept", Produced.with(TEXT, TEXT));
        builder.stream("in-red", Consumed.with(LONG, LONG)).groupByKey(Grouped.with(LONG, LONG))
            .reduce(Long::sum, table("red-sum", LONG, LONG)).toStream().to(out + "red", Produced.with(LONG, LONG));
        builder.stream("in-agg", texts).groupByKey(byKey)
            .aggregate(() -> (JsonNode) JSON.createObjectNode().put("n", 0), (key, value, all) -> {
                ObjectNode next = all.deepCopy();
                return next.put("n", all.get("n").asInt() + value.length());
            }, table("agg-json", TEXT, OBJECT)).toStream().to(out + "agg", Produced.with(TEXT, OBJECT));
        builder.stream("in-win", texts).groupByKey(byKey).windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, GRACE))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("win-count").withValueSerde(LONG))
            .toStream().to(out + "win", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000L), LONG));
        builder.stream("in-sld", texts).groupByKey(byKey)
            .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(20), GRACE))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("sld-count").withValueSerde(LONG))
            .toStream().to(out + "sld", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 20_000L), LONG));
        builder.stream("in-sess", texts).groupByKey(byKey)
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(30), GRACE))
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sess-count").withValueSerde(LONG))
            .toStream().to(out + "sess", Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), LONG));
        KTable<String, String> prices = builder.table("in-price", texts, Materialized.<String, String>as(
            Stores.persistentVersionedKeyValueStore("prices", Duration.ofMinutes(30))).withKeySerde(TEXT).withValueSerde(TEXT));
        builder.stream("in-order", texts).join(prices, (order, price) -> order + "@" + price, Joined.with(TEXT, TEXT, TEXT, "priced"))
            .to(out + "ver", Produced.with(TEXT, TEXT));
        builder.stream("in-order", texts).join(prices, (order, price) -> order + "@" + price,
            Joined.with(TEXT, TEXT, TEXT, "later", Duration.ofSeconds(20))).to(out + "grace", Produced.with(TEXT, TEXT));
        KTable<String, String> names = builder.table("in-tab", texts, table("names", TEXT, TEXT));
        builder.stream("in-ev", texts).leftJoin(names, (event, name) -> event + "/" + name, Joined.with(TEXT, TEXT, TEXT, "named"))
            .to(out + "tab", Produced.with(TEXT, TEXT));
        builder.stream("in-l", texts).join(builder.stream("in-r", texts), (left, right) -> left + "+" + right,
            JoinWindows.ofTimeDifferenceAndGrace(MINUTE, GRACE), StreamJoined.with(TEXT, TEXT, TEXT).withName("ij").withStoreName("ij"))
            .to(out + "ij", Produced.with(TEXT, TEXT));
        for (String kind : new String[] {"lj", "oj"}) {
            KStream<String, String> one = builder.stream("in-one", texts);
            KStream<String, String> two = builder.stream("in-two", texts);
            JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(MINUTE, GRACE);
            StreamJoined<String, String, String> how = StreamJoined.with(TEXT, TEXT, TEXT).withName(kind).withStoreName(kind);
            (kind.equals("lj") ? one.leftJoin(two, (a, b) -> a + "+" + b, near, how) : one.outerJoin(two, (a, b) -> a + "+" + b, near, how))
                .to(out + kind, Produced.with(TEXT, TEXT));
        }
        builder.stream("in-win", texts).groupByKey(byKey).windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, GRACE))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("sup-count").withValueSerde(LONG))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("sup"))
            .toStream().to(out + "sup", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000L), LONG));
        builder.stream("in-kv", texts).groupByKey(byKey).count(table("lim-count", TEXT, LONG))
            .suppress(Suppressed.untilTimeLimit(Duration.ofSeconds(20), Suppressed.BufferConfig.unbounded()).withName("lim"))
            .toStream().to(out + "lim", Produced.with(TEXT, LONG));
        builder.stream("in-win", texts).groupByKey(byKey).windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("eow-count").withValueSerde(LONG))
            .toStream().to(out + "eow", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000L), LONG));
        builder.stream("in-win", texts).groupByKey(byKey).windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("long-count").withValueSerde(LONG).withRetention(DAY))
            .toStream().to(out + "long", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000L), LONG));
        builder.stream("in-sess", texts).groupByKey(byKey)
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(30), GRACE))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("eos-count").withValueSerde(LONG).withRetention(DAY))
            .toStream().to(out + "eos", Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), LONG));
        builder.stream("in-rep", texts).groupBy((key, value) -> value, Grouped.with("by-val", TEXT, TEXT))
            .count(table("rep-count", TEXT, LONG)).toStream().to(out + "rep", Produced.with(TEXT, LONG));
        builder.table("in-tg", texts, table("tg-table", TEXT, TEXT))
            .groupBy((key, team) -> KeyValue.pair(team, 1L), Grouped.with("by-team", TEXT, LONG))
            .aggregate(() -> 0L, (key, value, all) -> all + value, (key, value, all) -> all - value, table("tg-sum", TEXT, LONG))
            .toStream().to(out + "tg", Produced.with(TEXT, LONG));
        KTable<String, String> employees = builder.table("in-emp", texts, table("emp", TEXT, TEXT));
        KTable<String, String> departments = builder.table("in-dept", texts, table("dept", TEXT, TEXT));
        employees.join(departments, employee -> employee, (employee, department) -> employee + "@" + department,
            TableJoined.as("fk"), table("fk-out", TEXT, TEXT)).toStream().to(out + "fk", Produced.with(TEXT, TEXT));
        return builder;
    }

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("processing.guarantee", arguments.length > 3 ? arguments[3] : "exactly_once_v2");
        settings.put("commit.interval.ms", "200");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
        settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        settings.put("auto.offset.reset", "earliest");
        settings.put("replication.factor", "1");
        KafkaStreams streams = new KafkaStreams(topology(arguments[1]).build(settings), settings);
        CountDownLatch failed = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            failed.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        CloseOptions leave = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leave)));
        streams.start();
        failed.await();
        System.exit(1);
    }
}
