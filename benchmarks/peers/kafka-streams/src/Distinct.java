import java.util.Set;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * Marks the bids whose bidder or auction a key has not seen yet. Kafka Streams has no distinct count; a set in the aggregate's value
 * would be read and written whole for every bid, so each of its members has a row of its own here.
 */
final class Distinct<K> implements FixedKeyProcessor<K, Market.Sale, Market.Marked> {
    private static final String SEEN = "seen";

    private FixedKeyProcessorContext<K, Market.Marked> context;
    private KeyValueStore<String, Integer> seen;

    private Distinct() {}

    static <K> FixedKeyProcessorSupplier<K, Market.Sale, Market.Marked> supplier() {
        return new FixedKeyProcessorSupplier<>() {
            @Override
            public FixedKeyProcessor<K, Market.Sale, Market.Marked> get() {
                return new Distinct<>();
            }

            @Override
            public Set<StoreBuilder<?>> stores() {
                return Set.of(Stores.keyValueStoreBuilder(
                                Stores.persistentKeyValueStore(SEEN), Serdes.String(), Serdes.Integer())
                        .withCachingEnabled());
            }
        };
    }

    @Override
    public void init(FixedKeyProcessorContext<K, Market.Marked> given) {
        context = given;
        seen = given.getStateStore(SEEN);
    }

    @Override
    public void process(FixedKeyRecord<K, Market.Sale> record) {
        Market.Sale sale = record.value();
        int classes = 1 | 1 << sale.rank();
        int newBidder = mark(record.key() + "|bidder|" + sale.bidder(), classes);
        int newAuction = mark(record.key() + "|auction|" + sale.auction(), classes);
        context.forward(
                record.withValue(new Market.Marked(sale.rank(), newBidder, newAuction, sale.minute())));
    }

    /** Those of the classes that a member is new in. */
    private int mark(String member, int classes) {
        Integer before = seen.get(member);
        int known = before == null ? 0 : before;
        if ((known | classes) != known) {
            seen.put(member, known | classes);
        }
        return classes & ~known;
    }
}
