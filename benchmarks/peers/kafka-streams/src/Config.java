import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.streams.StreamsConfig;

/** The harness's configuration file; benchmarks/README.md describes it. */
record Config(JsonNode json) {
    static Config read(String path) throws IOException {
        return new Config(new ObjectMapper().readTree(new File(path)));
    }

    String workload() {
        return json.get("workload").asText();
    }

    String topic(String role) {
        return json.get("topics").get(role).asText();
    }

    long number(String parameter) {
        return json.get("parameters").get(parameter).asLong();
    }

    Duration duration(String parameter) {
        return Duration.ofMillis(number(parameter));
    }

    /** Kafka Streams' defaults, but for guarantee, threads and a commit interval that is the same for both guarantees. */
    Properties properties() {
        boolean exactlyOnce = json.get("guarantee").asText().equals("exactly-once");
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, json.get("application_id").asText());
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, json.get("bootstrap_servers").asText());
        properties.put(StreamsConfig.STATE_DIR_CONFIG, json.get("state_dir").asText());
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, json.get("threads").asInt());
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        properties.put(
                StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
                exactlyOnce ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
        json.get("settings")
                .properties()
                .forEach(setting -> properties.put(setting.getKey(), setting.getValue().asText()));
        return properties;
    }
}
