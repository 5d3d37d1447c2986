import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;

/**
 * Answers histories with the real stores and joins of Kafka Streams. Each line of standard input is a history in JSON:
 * {"store": {...}, "ops": [...]} or {"join": {...}, "inputs": [...]}; each line of standard output is {"answers": [...]}.
 * Keys and values of stores are bytes in hexadecimal digits; those of joins are text.
 */
public final class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();
    static final String APPLICATION = "oracle";

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode history = JSON.readTree(line);
            Path directory = Files.createTempDirectory("kafka-semantics");
            List<Object> answers;
            try {
                answers = history.has("join")
                        ? Joins.answers(history, directory)
                        : StoreHistory.answers(history, directory);
            } finally {
                remove(directory);
            }
            out.println(JSON.writeValueAsString(java.util.Map.of("answers", answers)));
            out.flush();
        }
    }

    static TopologyTestDriver driver(Topology topology, Path directory) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory.toString());
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0L);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        return new TopologyTestDriver(topology, settings);
    }

    static void remove(Path directory) throws Exception {
        try (Stream<Path> paths = Files.walk(directory)) {
            for (Path path : new ArrayList<>(paths.sorted(Comparator.reverseOrder()).toList())) {
                Files.deleteIfExists(path);
            }
        }
    }
}
