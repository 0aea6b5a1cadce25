import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;

/** The workloads by name. */
final class Workloads {
    private Workloads() {}

    /** The topology of a workload, or null if it is not one for a Java library. */
    static Topology topology(Config config) {
        StreamsBuilder builder = new StreamsBuilder();
        String name = config.workload();
        switch (name) {
            case "passthrough" -> Stateless.passthrough(builder, config);
            case "shuffle" -> Stateless.shuffle(builder, config);
            case "shufflebench" -> ShuffleBench.build(builder, config);
            case "devices" -> Devices.build(builder, config);
            case "counts" -> Windows.counts(builder, config);
            case "windows" -> Windows.tumbling(builder, config);
            case "latency", "recovery" -> Windows.tumblingWithTime(builder, config);
            case "sessions" -> Windows.sessions(builder, config);
            case "sliding" -> Windows.sliding(builder, config);
            case "join-inner", "join-3d" -> Joins.inner(builder, config);
            case "join-left" -> Joins.left(builder, config);
            case "table-join" -> Joins.streamTable(builder, config);
            case "table-fill", "restore" -> Joins.tableFill(builder, config);
            case "enrich" -> Joins.enrich(builder, config);
            case "nexmark-q5" -> Nexmark.hotItems(builder, config);
            case "nexmark-q7" -> Nexmark.highestBid(builder, config);
            case "nexmark-q11" -> Nexmark.userSessions(builder, config);
            default -> {
                if (!name.startsWith(Suite.PREFIX)
                        || !Suite.build(builder, config, name.substring(Suite.PREFIX.length()))) {
                    return null;
                }
            }
        }
        return builder.build();
    }
}
