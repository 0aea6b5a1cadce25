import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;

/** Three queries of Nexmark (B4): hot items, highest bid, user sessions. */
final class Nexmark {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> NUMBER = Serdes.Long();
    private static final Serde<Values.Bid> BID = Json.of(Values.Bid.class);
    private static final Serde<Values.Count> COUNT = Json.of(Values.Count.class);

    private Nexmark() {}

    /** Query 5: counts only grow, so the largest update of a window is the largest count. */
    static void hotItems(StreamsBuilder builder, Config config) {
        bids(builder, config)
                .map((bidder, bid) -> KeyValue.pair(bid.auction(), 1L))
                .groupByKey(Grouped.with(NUMBER, NUMBER))
                .windowedBy(Windows.windows(config).advanceBy(config.duration("hop_ms")))
                .count(Materialized.with(NUMBER, NUMBER))
                .toStream()
                .map((key, count) -> KeyValue.pair(Long.toString(key.window().start()), count))
                .groupByKey(Grouped.with(TEXT, NUMBER))
                .reduce(Math::max, Materialized.with(TEXT, NUMBER))
                .toStream()
                .mapValues(Values.Count::new)
                .to(config.topic("out"), Produced.with(TEXT, COUNT));
    }

    /** Query 7: all bids under one key, and so in one task. */
    static void highestBid(StreamsBuilder builder, Config config) {
        bids(builder, config)
                .map((bidder, bid) -> KeyValue.pair("all", bid.price()))
                .groupByKey(Grouped.with(TEXT, NUMBER))
                .windowedBy(Windows.windows(config))
                .reduce(Math::max, Materialized.with(TEXT, NUMBER))
                .toStream()
                .map((key, price) -> KeyValue.pair(Long.toString(key.window().start()), new Values.Price(price)))
                .to(config.topic("out"), Produced.with(TEXT, Json.of(Values.Price.class)));
    }

    static void userSessions(StreamsBuilder builder, Config config) {
        bids(builder, config)
                .groupByKey()
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(config.duration("gap_ms"), config.duration("grace_ms")))
                .count(Materialized.with(TEXT, NUMBER))
                .toStream()
                .mapValues(count -> count == null ? null : new Values.Count(count))
                .to(config.topic("out"), Windows.session(COUNT));
    }

    private static KStream<String, Values.Bid> bids(StreamsBuilder builder, Config config) {
        return builder.stream(config.topic("events"), Consumed.with(TEXT, BID));
    }
}
