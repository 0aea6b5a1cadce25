import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
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
        Rules rules = new Rules((int) config.number("consumers"));
        builder.stream(config.topic("events"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .flatMap((key, bytes) -> rules.matching(bytes))
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

    /** The ranges of hashes of all consumers, in the order of their offsets; they wrap around at 2^63. */
    private static final class Rules {
        private final int[] consumers;
        private final long[] offsets;
        private final long width;

        Rules(int count) {
            consumers = IntStream.range(0, count)
                    .boxed()
                    .sorted(Comparator.comparingLong(Rules::offset))
                    .mapToInt(Integer::intValue)
                    .toArray();
            offsets = Arrays.stream(consumers).mapToLong(Rules::offset).toArray();
            width = Long.divideUnsigned(1L << 63, 5) / count;
        }

        /** SplitMix64 (Steele, Lea and Flood 2014) of a consumer's number. */
        private static long offset(int consumer) {
            long mixed = (consumer + 1) * 0x9E3779B97F4A7C15L;
            mixed = (mixed ^ (mixed >>> 30)) * 0xBF58476D1CE4E5B9L;
            mixed = (mixed ^ (mixed >>> 27)) * 0x94D049BB133111EBL;
            return (mixed ^ (mixed >>> 31)) & Long.MAX_VALUE;
        }

        /** A record for each consumer whose range has its hash. */
        List<KeyValue<String, byte[]>> matching(byte[] bytes) {
            List<KeyValue<String, byte[]>> found = new ArrayList<>(1);
            long at = hash(bytes);
            add(bytes, found, after(at - width), after(at));
            if (at < width) {
                add(bytes, found, after(at - width + Long.MAX_VALUE + 1), offsets.length);
            }
            return found;
        }

        /** The number of offsets that are not behind a hash. */
        private int after(long hash) {
            int at = Arrays.binarySearch(offsets, hash);
            return at < 0 ? -at - 1 : at + 1;
        }

        private void add(byte[] bytes, List<KeyValue<String, byte[]>> found, int first, int end) {
            for (int at = first; at < end; at++) {
                found.add(KeyValue.pair(Stateless.named(consumers[at]), bytes));
            }
        }
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
