import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/** Runs the workload of a configuration file until SIGTERM. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Config config = Config.read(arguments[0]);
        Topology topology = Workloads.topology(config);
        if (topology == null) {
            System.err.println("Kafka Streams is a Java library: it cannot run " + config.workload());
            System.exit(64);
        }
        CountDownLatch failed = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(topology, config.properties());
        streams.setStateListener((now, before) -> {
            System.err.printf("%d %s -> %s%n", System.currentTimeMillis(), before, now);
            if (now == KafkaStreams.State.ERROR) {
                failed.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        // Members that do not leave the group would make the next start wait for their session timeout.
        CloseOptions leave = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leave)));
        streams.start();
        failed.await();
        System.exit(1);
    }
}
