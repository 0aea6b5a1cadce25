import java.nio.ByteBuffer;
import java.util.Set;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** ShuffleBench's consumer as upstream writes it for Kafka Streams: a state of 32 bytes that becomes an event at each tenth record. */
final class ShuffleBench implements FixedKeyProcessor<String, byte[], byte[]> {
    private static final String STORE = "consumers";
    private static final int EVERY = 10;

    private FixedKeyProcessorContext<String, byte[]> context;
    private KeyValueStore<String, byte[]> states;

    static void build(StreamsBuilder builder, Config config) {
        long consumers = config.number("consumers");
        builder.stream(config.topic("events"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .filter((key, bytes) -> Stateless.matches(hash(bytes)))
                .selectKey((key, bytes) -> Stateless.consumer(hash(bytes), consumers))
                .repartition(Repartitioned.with(Serdes.String(), Serdes.ByteArray()))
                .processValues(new Supplier())
                .to(config.topic("out"), Produced.with(Serdes.String(), Serdes.ByteArray()));
    }

    private static long hash(byte[] bytes) {
        return ByteBuffer.wrap(bytes).getLong();
    }

    @Override
    public void init(FixedKeyProcessorContext<String, byte[]> given) {
        context = given;
        states = given.getStateStore(STORE);
    }

    @Override
    public void process(FixedKeyRecord<String, byte[]> record) {
        byte[] found = states.get(record.key());
        ByteBuffer before = ByteBuffer.wrap(found == null ? firstState(record.key()) : found);
        long count = before.getLong() + 1;
        long sum = before.getLong() + hash(record.value());
        long start = before.getLong();
        byte[] state = ByteBuffer.allocate(4 * Long.BYTES)
                .putLong(count)
                .putLong(sum)
                .putLong(start == 0 ? record.timestamp() : start)
                .putLong(record.timestamp())
                .array();
        if (count == EVERY) {
            context.forward(record.withValue(state));
            state = new byte[4 * Long.BYTES];
        }
        states.put(record.key(), state);
    }

    /** Consumers begin at different counts, so that they do not all make their events at the same time. */
    private static byte[] firstState(String consumer) {
        long count = Long.parseLong(consumer.substring("c-".length())) % EVERY;
        return ByteBuffer.allocate(4 * Long.BYTES).putLong(count).array();
    }

    private static final class Supplier implements FixedKeyProcessorSupplier<String, byte[], byte[]> {
        @Override
        public FixedKeyProcessor<String, byte[], byte[]> get() {
            return new ShuffleBench();
        }

        @Override
        public Set<StoreBuilder<?>> stores() {
            return Set.of(Stores.keyValueStoreBuilder(
                    Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.ByteArray()));
        }
    }
}
