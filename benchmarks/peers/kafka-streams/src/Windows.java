import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/** Count and mean by key in tumbling, session and sliding windows. */
final class Windows {
    private static final Serde<Values.Sum> SUM = Json.of(Values.Sum.class);
    private static final Serde<Values.Mean> MEAN = Json.of(Values.Mean.class);

    private Windows() {}

    static KStream<String, Values.Reading> readings(StreamsBuilder builder, Config config) {
        return builder.stream(config.topic("events"), Consumed.with(Serdes.String(), Json.of(Values.Reading.class)));
    }

    static TimeWindows windows(Config config) {
        return TimeWindows.ofSizeAndGrace(config.duration("window_ms"), config.duration("grace_ms"));
    }

    static String startKey(Windowed<String> key) {
        return key.key() + "|" + key.window().start();
    }

    static String sessionKey(Windowed<String> key) {
        return key.key() + "|" + key.window().start() + "|" + key.window().end();
    }

    static void tumbling(StreamsBuilder builder, Config config) {
        KTable<Windowed<String>, Values.Sum> sums = readings(builder, config)
                .groupByKey()
                .windowedBy(windows(config))
                .aggregate(
                        () -> Values.Sum.NONE,
                        (key, reading, sum) -> sum.plus(reading.v()[0]),
                        Materialized.with(Serdes.String(), SUM));
        write(sums, config);
    }

    static void tumblingWithTime(StreamsBuilder builder, Config config) {
        readings(builder, config)
                .groupByKey()
                .windowedBy(windows(config))
                .aggregate(
                        () -> Values.SumAndTime.NONE,
                        (key, reading, sum) -> sum.plus(reading),
                        Materialized.with(Serdes.String(), Json.of(Values.SumAndTime.class)))
                .toStream()
                .map((key, sum) -> KeyValue.pair(startKey(key), sum.mean()))
                .to(config.topic("out"), Produced.with(Serdes.String(), Json.of(Values.MeanAndTime.class)));
    }

    static void sessions(StreamsBuilder builder, Config config) {
        events(builder, config)
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(config.duration("gap_ms"), config.duration("grace_ms")))
                .aggregate(
                        () -> Values.Sum.NONE,
                        (key, event, sum) -> sum.plus(event.v()),
                        (key, one, other) -> one.plus(other),
                        Materialized.with(Serdes.String(), SUM))
                .toStream()
                .map((key, sum) -> KeyValue.pair(sessionKey(key), sum == null ? null : sum.mean()))
                .to(config.topic("out"), Produced.with(Serdes.String(), MEAN));
    }

    static void sliding(StreamsBuilder builder, Config config) {
        SlidingWindows windows =
                SlidingWindows.ofTimeDifferenceAndGrace(config.duration("difference_ms"), config.duration("grace_ms"));
        KTable<Windowed<String>, Values.Sum> sums = events(builder, config)
                .windowedBy(windows)
                .aggregate(
                        () -> Values.Sum.NONE,
                        (key, event, sum) -> sum.plus(event.v()),
                        Materialized.with(Serdes.String(), SUM));
        write(sums, config);
    }

    static void write(KTable<Windowed<String>, Values.Sum> sums, Config config) {
        sums.toStream()
                .map((key, sum) -> KeyValue.pair(startKey(key), sum.mean()))
                .to(config.topic("out"), Produced.with(Serdes.String(), MEAN));
    }

    private static KGroupedStream<String, Values.Event> events(StreamsBuilder builder, Config config) {
        return builder.stream(config.topic("events"), Consumed.with(Serdes.String(), Json.of(Values.Event.class)))
                .groupByKey();
    }
}
