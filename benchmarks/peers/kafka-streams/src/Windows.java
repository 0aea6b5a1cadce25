import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
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
import org.apache.kafka.streams.kstream.WindowedSerdes;

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

    /** Windowed keys as Kafka Streams writes them: the key, then the window's start. */
    static <V> Produced<Windowed<String>, V> windowed(Config config, String sizeParameter, Serde<V> values) {
        return Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, config.number(sizeParameter)), values);
    }

    static <V> Produced<Windowed<String>, V> session(Serde<V> values) {
        return Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), values);
    }

    /** The same without windows. */
    static void counts(StreamsBuilder builder, Config config) {
        events(builder, config)
                .aggregate(
                        () -> Values.Sum.NONE,
                        (key, event, sum) -> sum.plus(event.v()),
                        Materialized.with(Serdes.String(), SUM))
                .toStream()
                .mapValues(Values.Sum::mean)
                .to(config.topic("out"), Produced.with(Serdes.String(), MEAN));
    }

    static void tumbling(StreamsBuilder builder, Config config) {
        KTable<Windowed<String>, Values.Sum> sums = readings(builder, config)
                .groupByKey()
                .windowedBy(windows(config))
                .aggregate(
                        () -> Values.Sum.NONE,
                        (key, reading, sum) -> sum.plus(reading.v()[0]),
                        Materialized.with(Serdes.String(), SUM));
        write(sums, config, "window_ms");
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
                .mapValues(Values.SumAndTime::mean)
                .to(config.topic("out"), windowed(config, "window_ms", Json.of(Values.MeanAndTime.class)));
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
                .mapValues(sum -> sum == null ? null : sum.mean())
                .to(config.topic("out"), session(MEAN));
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
        write(sums, config, "difference_ms");
    }

    static void write(KTable<Windowed<String>, Values.Sum> sums, Config config, String sizeParameter) {
        sums.toStream()
                .mapValues(Values.Sum::mean)
                .to(config.topic("out"), windowed(config, sizeParameter, MEAN));
    }

    private static KGroupedStream<String, Values.Event> events(StreamsBuilder builder, Config config) {
        return builder.stream(config.topic("events"), Consumed.with(Serdes.String(), Json.of(Values.Event.class)))
                .groupByKey();
    }
}
