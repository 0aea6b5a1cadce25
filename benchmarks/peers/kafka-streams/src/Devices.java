import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/** B2, as topologies/devices.py: statistics of each device in windows of 1 s and 10 s, and the number of its lost readings. */
final class Devices {
    private static final Duration GRACE = Duration.ofSeconds(2);

    private Devices() {}

    static void build(StreamsBuilder builder, Config config) {
        KGroupedStream<String, Values.Reading> devices = Windows.readings(builder, config).groupByKey();
        statistics(devices, Duration.ofSeconds(1), config.topic("stats_1s"));
        statistics(devices, Duration.ofSeconds(10), config.topic("stats_10s"));
        gaps(devices, config.topic("gaps"));
    }

    private static void statistics(KGroupedStream<String, Values.Reading> devices, Duration size, String topic) {
        devices.windowedBy(TimeWindows.ofSizeAndGrace(size, GRACE))
                .aggregate(
                        () -> Values.Summary.NONE,
                        (device, reading, summary) -> summary.plus(reading.v()[0]),
                        Materialized.with(Serdes.String(), Json.of(Values.Summary.class)))
                .toStream()
                .map((key, summary) -> KeyValue.pair(startKey(key), summary.statistics(key.window().start())))
                .to(topic, Produced.with(Serdes.String(), Json.of(Values.Statistics.class)));
    }

    private static void gaps(KGroupedStream<String, Values.Reading> devices, String topic) {
        devices.aggregate(
                        () -> Values.Sequence.NONE,
                        (device, reading, seen) -> seen.plus(reading.s()),
                        Materialized.with(Serdes.String(), Json.of(Values.Sequence.class)))
                .toStream()
                .mapValues(Values.Sequence::missing)
                .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
                .aggregate(
                        () -> new Values.Missing(0, false),
                        (device, missing, before) -> new Values.Missing(missing, missing != before.missing()),
                        Materialized.with(Serdes.String(), Json.of(Values.Missing.class)))
                .toStream()
                .filter((device, missing) -> missing.changed())
                .mapValues(Values.Missing::missing)
                .to(topic, Produced.with(Serdes.String(), Json.of(Long.class)));
    }

    private static String startKey(Windowed<String> key) {
        return key.key() + "|" + key.window().start();
    }
}
