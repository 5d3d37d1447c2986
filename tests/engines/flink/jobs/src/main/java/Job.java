import java.util.Map;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A streaming job that mirrors its state into {@link Truth}. */
interface Job {
    /** Adds the job's operators. The options are those of the command line, with the changes of the restart. */
    void build(StreamExecutionEnvironment env, Map<String, String> options);

    /** Writes the lines that follow from the events alone, such as those of windows. */
    default void derive(long events) {}
}
