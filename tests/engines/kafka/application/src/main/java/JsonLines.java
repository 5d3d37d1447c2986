import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * Commands from standard input and answers to standard output, an object of JSON a line: {"command": NAME, ...} is
 * answered by {"answer": ...} or {"error": stack trace}. The end of the input ends the process at once, so that it
 * cannot outlive whoever started it, however that one ended.
 */
final class JsonLines {
    static final ObjectMapper JSON = new ObjectMapper();

    interface Command {
        JsonNode run(JsonNode asked) throws Exception;
    }

    /** Announce what is ready, then answer commands until the input ends. */
    static void serve(JsonNode ready, Map<String, Command> commands) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> read(lines), "commands");
        reader.setDaemon(true);
        write(out, "answer", ready);
        reader.start();
        while (true) {
            JsonNode asked = JSON.readTree(lines.take());
            try {
                Command command = commands.get(asked.get("command").textValue());
                write(out, "answer", command.run(asked));
            } catch (Exception error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                write(out, "error", JSON.getNodeFactory().textNode(trace.toString()));
            }
        }
    }

    private static void read(BlockingQueue<String> lines) {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                lines.add(line);
            }
        } catch (IOException error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void write(PrintStream out, String field, JsonNode value) throws IOException {
        ObjectNode line = JSON.createObjectNode();
        line.set(field, value);
        out.println(JSON.writeValueAsString(line));
        out.flush();
    }
}
