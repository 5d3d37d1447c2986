import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.util.HexFormat;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** Keys, values and headers as JSON, and their serdes by name. Bytes are hexadecimal digits. */
final class Cells {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final HexFormat HEX = HexFormat.of();

    @SuppressWarnings("unchecked")
    static Serde<Object> serde(String name) {
        Serde<?> serde = switch (name) {
            case "string" -> Serdes.String();
            case "integer" -> Serdes.Integer();
            case "long" -> Serdes.Long();
            default -> throw new IllegalArgumentException("serde " + name);
        };
        return (Serde<Object>) serde;
    }

    static Object read(String serde, JsonNode cell) {
        if (cell.isNull()) {
            return null;
        }
        return switch (serde) {
            case "integer" -> (Object) cell.intValue();
            case "long" -> (Object) cell.longValue();
            default -> cell.textValue();
        };
    }

    static JsonNode json(Object cell) {
        return JsonLines.JSON.valueToTree(cell);
    }

    static JsonNode hex(byte[] bytes) {
        return bytes == null ? NODES.nullNode() : NODES.textNode(HEX.formatHex(bytes));
    }

    static byte[] bytes(JsonNode hex) {
        return hex.isNull() ? null : HEX.parseHex(hex.textValue());
    }

    static RecordHeaders headers(JsonNode pairs) {
        RecordHeaders headers = new RecordHeaders();
        for (JsonNode pair : pairs) {
            headers.add(pair.get(0).textValue(), bytes(pair.get(1)));
        }
        return headers;
    }

    static ArrayNode json(Headers headers) {
        ArrayNode pairs = NODES.arrayNode();
        for (Header header : headers) {
            pairs.addArray().add(header.key()).add(hex(header.value()));
        }
        return pairs;
    }
}
