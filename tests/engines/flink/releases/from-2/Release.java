import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import java.time.Duration;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;

/** What is written in another way since Flink 2. */
final class Release {
    private Release() {}

    interface Source extends SourceFunction<Long> {}

    static StateTtlConfig ttl() {
        return StateTtlConfig.newBuilder(Duration.ofDays(30000)).build();
    }

    static TumblingEventTimeWindows windows() {
        return TumblingEventTimeWindows.of(Duration.ofSeconds(50));
    }
}
