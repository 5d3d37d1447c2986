import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

/** What the state holds: a JSON line for each cell, kept up to date by the functions that change the state. */
final class Truth {
    static final ConcurrentHashMap<String, String> LINES = new ConcurrentHashMap<>();

    private Truth() {}

    /** Sets a cell, or removes it where the value is null. */
    static void put(String operator, String state, String kind, Object key, Object namespace, Object value) {
        String id = String.join("|", operator, state, JsonText.of(key), JsonText.of(namespace));
        if (value == null) LINES.remove(id);
        else LINES.put(id, line(operator, state, kind, key, namespace, JsonText.of(value)));
    }

    /** Sets a cell whose value is null, which is not the same as no cell. */
    static void putNull(String operator, String state, String kind, Object key, Object namespace) {
        String id = String.join("|", operator, state, JsonText.of(key), JsonText.of(namespace));
        LINES.put(id, line(operator, state, kind, key, namespace, "null"));
    }

    static void timer(String operator, String service, Object key, Object namespace, long time, boolean set) {
        String id = String.join("|", operator, service, JsonText.of(key), JsonText.of(namespace), Long.toString(time));
        if (set) LINES.put(id, line(operator, service, "timer", key, namespace, Long.toString(time)));
        else LINES.remove(id);
    }

    static void forget(String operator) {
        LINES.keySet().removeIf(id -> id.startsWith(operator + "|"));
    }

    static void forget(String operator, String state) {
        LINES.keySet().removeIf(id -> id.startsWith(operator + "|" + state + "|"));
    }

    /** Forgets the state of operators, which subtasks that no longer run would leave; those that run write it again. */
    static void forgetOperatorState() {
        LINES.values().removeIf(line -> line.contains("\"kind\":\"operator-") || line.contains("\"kind\":\"broadcast\""));
    }

    static void write(Path file) throws IOException {
        List<String> lines = new ArrayList<>(LINES.values());
        Collections.sort(lines);
        Files.write(file, lines);
    }

    private static String line(String operator, String state, String kind, Object key, Object namespace, String value) {
        return "{\"operator\":" + JsonText.of(operator) + ",\"state\":" + JsonText.of(state) + ",\"kind\":" + JsonText.of(kind)
            + ",\"key\":" + JsonText.of(key) + ",\"namespace\":" + JsonText.of(namespace) + ",\"value\":" + value + "}";
    }
}
