import java.io.IOException;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.core.io.SimpleVersionedSerialization;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** Lines of JSON: an element's form, its bytes as a state has them, and the rows that they stand for. */
final class ElementLines {
    private final PrintStream out;

    ElementLines(PrintStream out) {
        this.out = out;
    }

    @SuppressWarnings("unchecked")
    <T> byte[] write(String form, SimpleVersionedSerializer<?> by, T value, List<Map<String, Object>> rows)
            throws IOException {
        byte[] bytes = SimpleVersionedSerialization.writeVersionAndSerialize((SimpleVersionedSerializer<T>) by, value);
        line(form, bytes, rows);
        return bytes;
    }

    void line(String form, byte[] bytes, List<Map<String, Object>> rows) {
        Map<String, Object> line = row("form", form, "rows", rows);
        line.put("bytes", Base64.getEncoder().encodeToString(bytes));
        out.println(json(line));
    }

    static Map<String, Object> row(Object... cells) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int each = 0; each < cells.length; each += 2) {
            row.put((String) cells[each], cells[each + 1]);
        }
        return row;
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            List<String> parts = new ArrayList<>();
            map.forEach((key, each) -> parts.add(json(key) + ":" + json(each)));
            return "{" + String.join(",", parts) + "}";
        }
        if (value instanceof List<?> list) {
            List<String> parts = new ArrayList<>();
            list.forEach(each -> parts.add(json(each)));
            return "[" + String.join(",", parts) + "]";
        }
        if (!(value instanceof String text)) {
            return String.valueOf(value);
        }
        StringBuilder found = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            found.append(each >= ' ' && each < 127 && each != '"' && each != '\\'
                    ? String.valueOf(each) : String.format("\\u%04x", (int) each));
        }
        return found.append('"').toString();
    }
}
