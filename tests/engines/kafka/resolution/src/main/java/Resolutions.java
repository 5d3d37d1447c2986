import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/**
 * What Avro's own library reads of values of one schema with another one. Each line of the input is
 * {"writer": SCHEMA, "reader": SCHEMA, "values": [HEX, ...]}; its answer is a list with a value for each, or null for one
 * that cannot be read, in the form that {@link #shown} gives it.
 */
public class Resolutions {
    static final ObjectMapper JSON = new ObjectMapper();
    static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ArrayNode answers = NODES.arrayNode();
            GenericDatumReader<Object> reader = null;
            Schema read = null;
            String problem = null;
            try {
                Schema written = new Schema.Parser().parse(asked.get("writer").toString());
                read = new Schema.Parser().parse(asked.get("reader").toString());
                reader = new GenericDatumReader<>(written, read);
            } catch (RuntimeException error) {
                problem = error.toString();
            }
            for (JsonNode value : asked.get("values")) {
                ArrayNode answer = answers.addArray();
                if (problem != null) {
                    answer.add(problem);
                    continue;
                }
                byte[] data = HexFormat.of().parseHex(value.textValue());
                try {
                    BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(data, null);
                    Object found = reader.read(null, decoder);
                    JsonNode shown = shown(read, found);
                    answer.addNull();
                    answer.add(shown);
                } catch (Exception error) {
                    answer.add(error.toString());
                }
            }
            System.out.println(JSON.writeValueAsString(answers));
        }
    }

    /** A union is [branch, value], a number with a point its bits, bytes are hex, a record is the list of its values. */
    static JsonNode shown(Schema schema, Object value) {
        switch (schema.getType()) {
            case NULL: return NODES.nullNode();
            case BOOLEAN: return NODES.booleanNode((Boolean) value);
            case INT: return NODES.numberNode((Integer) value);
            case LONG: return NODES.numberNode((Long) value);
            case FLOAT: return NODES.numberNode(Float.floatToIntBits((Float) value));
            case DOUBLE: return NODES.numberNode(Double.doubleToLongBits((Double) value));
            case STRING: case ENUM: return NODES.textNode(value.toString());
            case BYTES: {
                ByteBuffer bytes = ((ByteBuffer) value).duplicate();
                byte[] found = new byte[bytes.remaining()];
                bytes.get(found);
                return NODES.textNode(HexFormat.of().formatHex(found));
            }
            case FIXED: return NODES.textNode(HexFormat.of().formatHex(((GenericFixed) value).bytes()));
            case UNION: {
                int branch = GenericData.get().resolveUnion(schema, value);
                return NODES.arrayNode().add(branch).add(shown(schema.getTypes().get(branch), value));
            }
            case ARRAY: {
                ArrayNode found = NODES.arrayNode();
                for (Object each : (Iterable<?>) value) found.add(shown(schema.getElementType(), each));
                return found;
            }
            case MAP: {
                TreeMap<String, JsonNode> sorted = new TreeMap<>();
                for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet())
                    sorted.put(each.getKey().toString(), shown(schema.getValueType(), each.getValue()));
                ArrayNode found = NODES.arrayNode();
                sorted.forEach((key, each) -> found.add(NODES.arrayNode().add(key).add(each)));
                return found;
            }
            default: {
                ArrayNode found = NODES.arrayNode();
                for (Schema.Field field : schema.getFields())
                    found.add(shown(field.schema(), ((IndexedRecord) value).get(field.pos())));
                return found;
            }
        }
    }
}
