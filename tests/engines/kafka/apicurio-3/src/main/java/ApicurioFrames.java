import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** Prints orders by two schemas, as the serializer of Apicurio 3 writes them in each of its ways. */
public final class ApicurioFrames {
    private static final String START =
            "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":[{\"name\":\"id\",\"type\":";
    private static final String[] SCHEMAS = {
        START + "\"int\"}]}",
        START + "\"long\"},{\"name\":\"note\",\"type\":[\"null\",\"string\"],\"default\":null}]}"
    };
    private static final Map<String, Map<String, String>> WAYS = Map.of(
            "content", Map.of(),
            "global", Map.of("use-id", "globalId"),
            "content-8", Map.of("id-handler", "io.apicurio.registry.serde.Legacy8ByteIdHandler"),
            "global-8", Map.of(
                    "use-id", "globalId", "id-handler", "io.apicurio.registry.serde.Legacy8ByteIdHandler"),
            "content-header", Map.of("headers.enabled", "true"),
            "global-header", Map.of("headers.enabled", "true", "use-id", "globalId"));

    private ApicurioFrames() {}

    public static void main(String[] arguments) {
        for (Map.Entry<String, Map<String, String>> way : WAYS.entrySet()) {
            Map<String, Object> config = new HashMap<>(Map.of(
                    "apicurio.registry.url", arguments[0],
                    "apicurio.registry.auto-register", "true",
                    "apicurio.registry.if-exists", "FIND_OR_CREATE_VERSION",
                    "apicurio.registry.artifact-resolver-strategy",
                    "io.apicurio.registry.serde.avro.strategy.RecordIdStrategy"));
            way.getValue().forEach((name, value) -> config.put("apicurio.registry." + name, value));
            try (AvroKafkaSerializer<Object> serializer = new AvroKafkaSerializer<>()) {
                serializer.configure(config, false);
                for (int number = 0; number < 4; number++) {
                    print(way.getKey(), serializer, order(number));
                }
            }
        }
    }

    private static GenericRecord order(int number) {
        GenericRecord order = new GenericData.Record(new Schema.Parser().parse(SCHEMAS[number % 2]));
        if (number % 2 == 0) {
            order.put("id", number);
        } else {
            order.put("id", number + (1L << 40));
            order.put("note", number == 1 ? null : "\u00e9");
        }
        return order;
    }

    private static void print(String way, AvroKafkaSerializer<Object> serializer, GenericRecord order) {
        Headers headers = new RecordHeaders();
        byte[] value = serializer.serialize("orders", headers, order);
        List<String> shown = new ArrayList<>();
        for (Header each : headers) {
            shown.add("[\"" + each.key() + "\",\"" + HexFormat.of().formatHex(each.value()) + "\"]");
        }
        System.out.println("{\"way\":\"" + way + "\",\"value\":\"" + HexFormat.of().formatHex(value)
                + "\",\"headers\":[" + String.join(",", shown) + "]}");
    }
}
