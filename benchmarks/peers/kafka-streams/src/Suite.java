import java.time.Duration;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.WallclockTimestampExtractor;

/** All queries of Nexmark over one topic of nested events without keys, each as its user writes it. */
final class Suite {
    static final String PREFIX = "nexmark-suite-";

    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> NUMBER = Serdes.Long();
    private static final Serde<byte[]> NO_KEY = Serdes.ByteArray();
    private static final Serde<Market.Bid> BID = Json.of(Market.Bid.class);
    private static final Serde<Market.Won> WON = Json.of(Market.Won.class);
    private static final Duration GRACE = Duration.ofHours(1);
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration HOP = Duration.ofSeconds(2);
    private static final TimeWindows TEN_SECONDS = TimeWindows.ofSizeAndGrace(WINDOW, GRACE);
    private static final JoinWindows NEAR = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMinutes(1), GRACE);
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss.SSS");
    private static final DateTimeFormatter DAY = DateTimeFormatter.ofPattern("yyyy-MM-dd");
    private static final DateTimeFormatter MINUTE = DateTimeFormatter.ofPattern("HH:mm");
    private static final Pattern CHANNEL = Pattern.compile("(&|^)channel_id=([^&]*)");

    private final StreamsBuilder builder;
    private final Config config;

    private Suite(StreamsBuilder builder, Config config) {
        this.builder = builder;
        this.config = config;
    }

    /** Adds a query; false if there is none of that name. */
    static boolean build(StreamsBuilder builder, Config config, String query) {
        Suite suite = new Suite(builder, config);
        switch (query) {
            case "q0" -> suite.write(suite.bids(), NO_KEY, BID);
            case "q1" -> suite.write(suite.bids().mapValues(Market.InEuros::of), Market.InEuros.class);
            case "q2" -> suite.someAuctions();
            case "q3" -> suite.localSellers();
            case "q4" -> suite.meanOfCategories();
            case "q5" -> suite.hotItems();
            case "q6" -> suite.meanOfSellers();
            case "q7" -> suite.highestBids();
            case "q8" -> suite.newSellers();
            case "q9" -> suite.write(suite.winning().toStream(), NUMBER, WON);
            case "q10" -> suite.write(suite.bids().mapValues(Suite::dated), Market.Dated.class);
            case "q11" -> suite.sessions();
            case "q12" -> suite.countsByClock();
            case "q13" -> suite.besideTable();
            case "q14" -> suite.timesOfDay();
            case "q15" -> suite.statisticsOfDays();
            case "q16" -> suite.statisticsOfChannels();
            case "q17" -> suite.statisticsOfAuctions();
            case "q18" -> suite.lastBids();
            case "q19" -> suite.topBids();
            case "q20" -> suite.bidsWithItems();
            case "q21" -> suite.channels();
            case "q22" -> suite.write(suite.bids().mapValues(Suite::folders), Market.WithFolders.class);
            default -> {
                return false;
            }
        }
        return true;
    }

    /** q2. */
    private void someAuctions() {
        KStream<byte[], Market.AuctionPrice> some = bids()
                .filter((key, bid) -> bid.auction() % 123 == 0)
                .mapValues(bid -> new Market.AuctionPrice(bid.auction(), bid.price()));
        write(some, Market.AuctionPrice.class);
    }

    /** q3: a join by a foreign key, of auctions with their sellers. */
    private void localSellers() {
        KStream<byte[], Market.Event> events = events();
        Serde<Market.Seller> seller = Json.of(Market.Seller.class);
        Serde<Market.Listing> listing = Json.of(Market.Listing.class);
        KTable<Long, Market.Seller> sellers = persons(events)
                .filter((key, one) -> one.state().equals("OR") || one.state().equals("ID") || one.state().equals("CA"))
                .map((key, one) -> KeyValue.pair(
                        one.id(), new Market.Seller(one.id(), one.name(), one.city(), one.state())))
                .toTable(Materialized.with(NUMBER, seller));
        KTable<Long, Market.Listing> auctions = auctions(events)
                .filter((key, one) -> one.category() == 10)
                .map((key, one) -> KeyValue.pair(one.id(), Market.Listing.of(one)))
                .toTable(Materialized.with(NUMBER, listing));
        KTable<Long, Market.Seller> found = auctions.join(
                sellers,
                Market.Listing::seller,
                (one, by) -> new Market.Seller(one.id(), by.name(), by.city(), by.state()),
                Materialized.with(NUMBER, seller));
        write(found.toStream(), NUMBER, seller);
    }

    /** The highest bid of each auction, in its time. */
    private KTable<Long, Market.Won> winning() {
        KStream<byte[], Market.Event> events = events();
        Serde<Market.Listing> listing = Json.of(Market.Listing.class);
        Serde<Market.Offer> offer = Json.of(Market.Offer.class);
        KStream<Long, Market.Listing> auctions =
                auctions(events).map((key, one) -> KeyValue.pair(one.id(), Market.Listing.of(one)));
        KStream<Long, Market.Offer> bids = bids(events).map((key, one) -> KeyValue.pair(one.auction(), Market.Offer.of(one)));
        return auctions.join(bids, Market.Offered::new, NEAR, StreamJoined.with(NUMBER, listing, offer))
                .filter((auction, one) -> one.timely())
                .mapValues(Market.Offered::won)
                .groupByKey(Grouped.with(NUMBER, WON))
                .reduce(Market.Won::higher, Materialized.with(NUMBER, WON));
    }

    /** q4. */
    private void meanOfCategories() {
        KTable<Long, Market.Total> totals = winning()
                .groupBy((auction, won) -> KeyValue.pair(won.category(), won.price()), Grouped.with(NUMBER, NUMBER))
                .aggregate(
                        () -> Market.Total.NONE,
                        (category, price, total) -> total.plus(price),
                        (category, price, total) -> total.minus(price),
                        Materialized.with(NUMBER, Json.of(Market.Total.class)));
        write(totals.toStream().mapValues(Market.Total::mean), NUMBER, Json.of(Market.Mean.class));
    }

    /** q5. */
    private void hotItems() {
        Serde<Market.Hottest> hottest = Json.of(Market.Hottest.class);
        KTable<Long, Market.Hottest> most = bids()
                .map((key, bid) -> KeyValue.pair(bid.auction(), 1L))
                .groupByKey(Grouped.with(NUMBER, NUMBER))
                .windowedBy(TEN_SECONDS.advanceBy(HOP))
                .count(Materialized.with(NUMBER, NUMBER))
                .toStream()
                .map((key, count) -> KeyValue.pair(key.window().start(), new Market.Counted(key.key(), count)))
                .groupByKey(Grouped.with(NUMBER, Json.of(Market.Counted.class)))
                .aggregate(
                        () -> Market.Hottest.NONE,
                        (start, one, best) -> best.plus(one),
                        Materialized.with(NUMBER, hottest));
        write(most.toStream(), NUMBER, hottest);
    }

    /** q6: the last ten in a list of all, because Kafka Streams has no top N. */
    private void meanOfSellers() {
        KTable<Long, Market.Wins> wins = winning()
                .groupBy((auction, won) -> KeyValue.pair(won.seller(), won), Grouped.with(NUMBER, WON))
                .aggregate(
                        () -> Market.Wins.NONE,
                        (seller, won, all) -> all.plus(won),
                        (seller, won, all) -> all.minus(won),
                        Materialized.with(NUMBER, Json.of(Market.Wins.class)));
        write(wins.toStream().mapValues(Market.Wins::mean), NUMBER, Json.of(Market.Mean.class));
    }

    /** q7: all bids under one key, and so in one task. */
    private void highestBids() {
        Serde<Market.Offer> offer = Json.of(Market.Offer.class);
        KTable<Windowed<String>, Market.Offer> highest = bids()
                .map((key, bid) -> KeyValue.pair("all", Market.Offer.of(bid)))
                .groupByKey(Grouped.with(TEXT, offer))
                .windowedBy(TEN_SECONDS)
                .reduce((best, one) -> one.price() > best.price() ? one : best, Materialized.with(TEXT, offer));
        write(
                highest.toStream().mapValues(Market.Best::new),
                WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW.toMillis()),
                Json.of(Market.Best.class));
    }

    /** q8. */
    private void newSellers() {
        KStream<byte[], Market.Event> events = events();
        Serde<Market.Name> name = Json.of(Market.Name.class);
        KTable<Windowed<Long>, Market.Name> names = persons(events)
                .map((key, one) -> KeyValue.pair(one.id(), new Market.Name(one.name())))
                .groupByKey(Grouped.with(NUMBER, name))
                .windowedBy(TEN_SECONDS)
                .reduce((before, last) -> last, Materialized.with(NUMBER, name));
        KTable<Windowed<Long>, Long> opened = auctions(events)
                .map((key, one) -> KeyValue.pair(one.seller(), 1L))
                .groupByKey(Grouped.with(NUMBER, NUMBER))
                .windowedBy(TEN_SECONDS)
                .count(Materialized.with(NUMBER, NUMBER));
        write(names.join(opened, (one, count) -> one).toStream(), windowedNumber(), name);
    }

    /** q11. */
    private void sessions() {
        KTable<Windowed<Long>, Long> counts = bids()
                .map((key, bid) -> KeyValue.pair(bid.bidder(), 1L))
                .groupByKey(Grouped.with(NUMBER, NUMBER))
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(WINDOW, GRACE))
                .count(Materialized.with(NUMBER, NUMBER));
        write(
                counts.toStream().mapValues(count -> count == null ? null : new Market.Bids(count)),
                WindowedSerdes.sessionWindowedSerdeFrom(Long.class),
                Json.of(Market.Bids.class));
    }

    /** q12. */
    private void countsByClock() {
        Consumed<byte[], Market.Event> byClock = Consumed.with(NO_KEY, Json.of(Market.Event.class))
                .withTimestampExtractor(new WallclockTimestampExtractor());
        KTable<Windowed<Long>, Long> counts = bids(builder.stream(config.topic("events"), byClock))
                .map((key, bid) -> KeyValue.pair(bid.bidder(), 1L))
                .groupByKey(Grouped.with(NUMBER, NUMBER))
                .windowedBy(TEN_SECONDS)
                .count(Materialized.with(NUMBER, NUMBER));
        write(counts.toStream().mapValues(Market.Bids::new), windowedNumber(), Json.of(Market.Bids.class));
    }

    /** q13. */
    private void besideTable() {
        GlobalKTable<String, Market.Side> side =
                builder.globalTable(config.topic("side"), Consumed.with(TEXT, Json.of(Market.Side.class)));
        KStream<byte[], Market.WithSide> joined = bids().join(
                side,
                (key, bid) -> Long.toString(bid.auction() % 1000),
                (bid, one) -> new Market.WithSide(
                        bid.auction(), bid.bidder(), bid.price(), bid.dateTime(), one.value()));
        write(joined, Market.WithSide.class);
    }

    /** q14. */
    private void timesOfDay() {
        KStream<byte[], Market.Timed> timed = bids()
                .filter((key, bid) -> bid.euros() > 1_000_000 && bid.euros() < 50_000_000)
                .mapValues(bid -> new Market.Timed(
                        bid.auction(),
                        bid.bidder(),
                        bid.dateTime(),
                        bid.extra(),
                        bid.euros(),
                        timeOfDay(LocalDateTime.parse(bid.dateTime(), TIME).getHour()),
                        bid.extra().chars().filter(letter -> letter == 'c').count()));
        write(timed, Market.Timed.class);
    }

    /** q15. */
    private void statisticsOfDays() {
        statistics(Market.Bid::day, TEXT, false);
    }

    /** q16. */
    private void statisticsOfChannels() {
        statistics(
                bid -> new Market.ChannelDay(bid.channel(), bid.day()), Json.of(Market.ChannelDay.class), true);
    }

    private <K> void statistics(Function<Market.Bid, K> keyOf, Serde<K> keys, boolean withMinute) {
        Serde<Market.Sale> sale = Json.of(Market.Sale.class);
        KTable<K, Market.Tally> tallies = bids()
                .map((key, bid) -> KeyValue.pair(keyOf.apply(bid), Market.Sale.of(bid)))
                .repartition(Repartitioned.with(keys, sale))
                .processValues(Distinct.<K>supplier())
                .groupByKey(Grouped.with(keys, Json.of(Market.Marked.class)))
                .aggregate(
                        () -> Market.Tally.NONE,
                        (key, one, tally) -> tally.plus(one),
                        Materialized.with(keys, Json.of(Market.Tally.class)));
        write(
                tallies.toStream().mapValues(tally -> tally.statistics(withMinute)),
                keys,
                Json.of(Market.Statistics.class));
    }

    /** q17. */
    private void statisticsOfAuctions() {
        Serde<Market.AuctionDay> keys = Json.of(Market.AuctionDay.class);
        KTable<Market.AuctionDay, Market.Prices> prices = bids()
                .map((key, bid) -> KeyValue.pair(new Market.AuctionDay(bid.auction(), bid.day()), bid.price()))
                .groupByKey(Grouped.with(keys, NUMBER))
                .aggregate(
                        () -> Market.Prices.NONE,
                        (key, price, before) -> before.plus(price),
                        Materialized.with(keys, Json.of(Market.Prices.class)));
        write(prices.toStream().mapValues(Market.Prices::withMean), keys, Json.of(Market.PricesAndMean.class));
    }

    /** q18. */
    private void lastBids() {
        Serde<Market.BidderAuction> keys = Json.of(Market.BidderAuction.class);
        KTable<Market.BidderAuction, Market.Bid> last = bids()
                .groupBy((key, bid) -> new Market.BidderAuction(bid.bidder(), bid.auction()), Grouped.with(keys, BID))
                .reduce(
                        (before, one) -> one.dateTime().compareTo(before.dateTime()) >= 0 ? one : before,
                        Materialized.with(keys, BID));
        write(last.toStream().mapValues(Market.Last::new), keys, Json.of(Market.Last.class));
    }

    /** q19: a list in the aggregate, because Kafka Streams has no top N. */
    private void topBids() {
        KTable<Long, Market.Top> top = bids()
                .groupBy((key, bid) -> bid.auction(), Grouped.with(NUMBER, BID))
                .aggregate(
                        () -> Market.Top.NONE,
                        (auction, bid, before) -> before.plus(bid),
                        Materialized.with(NUMBER, Json.of(Market.Top.class)));
        write(top.toStream().mapValues(Market.Top::ranked), NUMBER, Json.of(Market.RankedBid[].class));
    }

    /** q20. */
    private void bidsWithItems() {
        KStream<byte[], Market.Event> events = events();
        KStream<Long, Market.Item> items = auctions(events)
                .filter((key, one) -> one.category() == 10)
                .map((key, one) -> KeyValue.pair(one.id(), Market.Item.of(one)));
        KStream<Long, Market.Bid> bids = bids(events).selectKey((key, bid) -> bid.auction());
        StreamJoined<Long, Market.Bid, Market.Item> joined =
                StreamJoined.with(NUMBER, BID, Json.of(Market.Item.class));
        write(bids.join(items, Suite::withItem, NEAR, joined), NUMBER, Json.of(Market.WithItem.class));
    }

    /** q21. */
    private void channels() {
        KStream<byte[], Market.WithChannel> numbered = bids()
                .mapValues(bid -> new Market.WithChannel(
                        bid.auction(), bid.bidder(), bid.price(), bid.channel(), channelOf(bid)))
                .filter((key, one) -> one.channel_id() != null);
        write(numbered, Market.WithChannel.class);
    }

    private KStream<byte[], Market.Event> events() {
        return builder.stream(config.topic("events"), Consumed.with(NO_KEY, Json.of(Market.Event.class)));
    }

    private KStream<byte[], Market.Bid> bids() {
        return bids(events());
    }

    private static KStream<byte[], Market.Bid> bids(KStream<byte[], Market.Event> events) {
        return events.filter((key, one) -> one.event_type() == Market.Event.BID).mapValues(Market.Event::bid);
    }

    private static KStream<byte[], Market.Auction> auctions(KStream<byte[], Market.Event> events) {
        return events.filter((key, one) -> one.event_type() == Market.Event.AUCTION).mapValues(Market.Event::auction);
    }

    private static KStream<byte[], Market.Person> persons(KStream<byte[], Market.Event> events) {
        return events.filter((key, one) -> one.event_type() == Market.Event.PERSON).mapValues(Market.Event::person);
    }

    private <V> void write(KStream<byte[], V> results, Class<V> type) {
        write(results, NO_KEY, Json.of(type));
    }

    private <K, V> void write(KStream<K, V> results, Serde<K> keys, Serde<V> values) {
        results.to(config.topic("out"), Produced.with(keys, values));
    }

    private static Serde<Windowed<Long>> windowedNumber() {
        return WindowedSerdes.timeWindowedSerdeFrom(Long.class, WINDOW.toMillis());
    }

    private static Market.Dated dated(Market.Bid bid) {
        LocalDateTime at = LocalDateTime.parse(bid.dateTime(), TIME);
        return new Market.Dated(
                bid.auction(),
                bid.bidder(),
                bid.price(),
                bid.channel(),
                bid.url(),
                bid.extra(),
                bid.dateTime(),
                DAY.format(at),
                MINUTE.format(at));
    }

    private static String timeOfDay(int hour) {
        if (hour >= 8 && hour <= 18) {
            return "dayTime";
        }
        return hour <= 6 || hour >= 20 ? "nightTime" : "otherTime";
    }

    private static Market.WithItem withItem(Market.Bid bid, Market.Item item) {
        return new Market.WithItem(
                bid.auction(),
                bid.bidder(),
                bid.price(),
                bid.channel(),
                bid.url(),
                bid.dateTime(),
                bid.extra(),
                item.itemName(),
                item.description(),
                item.initialBid(),
                item.reserve(),
                item.seller(),
                item.category(),
                item.expires());
    }

    private static String channelOf(Market.Bid bid) {
        return switch (bid.channel().toLowerCase()) {
            case "apple" -> "0";
            case "google" -> "1";
            case "facebook" -> "2";
            case "baidu" -> "3";
            default -> {
                Matcher found = CHANNEL.matcher(bid.url());
                yield found.find() ? found.group(2) : null;
            }
        };
    }

    private static Market.WithFolders folders(Market.Bid bid) {
        String[] parts = bid.url().split("/");
        return new Market.WithFolders(
                bid.auction(), bid.bidder(), bid.price(), bid.channel(), parts[3], parts[4], parts[5]);
    }
}
