import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.annotation.FunctionHint;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.api.dataview.ListView;
import org.apache.flink.table.api.dataview.MapView;
import org.apache.flink.table.functions.AggregateFunction;

/** Aggregate functions whose accumulators have views, objects of Java and POJOs. */
public final class SqlFunctions {
    private SqlFunctions() {}

    static void register(StreamTableEnvironment tables) {
        tables.createTemporarySystemFunction("viewed", Viewed.class);
        tables.createTemporarySystemFunction("only_views", OnlyViews.class);
        tables.createTemporarySystemFunction("by_kryo", ByKryo.class);
        tables.createTemporarySystemFunction("by_pojo", ByPojo.class);
        tables.createTemporarySystemFunction("by_fields", Structured.class);
    }

    /** Views among other fields. */
    public static class ViewedState {
        public long count;
        public MapView<String, Long> seen = new MapView<>();
        public String last;
        public ListView<Long> ids = new ListView<>();
        public double sum;
    }

    public static class Viewed extends AggregateFunction<Long, ViewedState> {
        @Override public ViewedState createAccumulator() {
            return new ViewedState();
        }

        @Override public Long getValue(ViewedState state) {
            return state.count;
        }

        public void accumulate(ViewedState state, String text, Long id, Double amount) throws Exception {
            state.count++;
            if (text != null) {
                Long before = state.seen.get(text);
                state.seen.put(text, before == null ? 1 : before + 1);
                state.last = text;
            }
            state.ids.add(id);
            if (amount != null) state.sum += amount;
        }
    }

    /** Views alone. */
    public static class OnlyViewsState {
        public MapView<Integer, String> names = new MapView<>();
        public ListView<String> texts = new ListView<>();
    }

    public static class OnlyViews extends AggregateFunction<String, OnlyViewsState> {
        @Override public OnlyViewsState createAccumulator() {
            return new OnlyViewsState();
        }

        @Override public String getValue(OnlyViewsState state) {
            return "";
        }

        public void accumulate(OnlyViewsState state, Integer number, String text) throws Exception {
            state.names.put(number, String.valueOf(text));
            state.texts.add(String.valueOf(text));
        }
    }

    /** An object of classes of the JDK, which Kryo writes. */
    @FunctionHint(accumulator = @DataTypeHint(value = "RAW", bridgedTo = HashMap.class))
    public static class ByKryo extends AggregateFunction<Integer, HashMap<String, List<Long>>> {
        @Override public HashMap<String, List<Long>> createAccumulator() {
            return new HashMap<>();
        }

        @Override public Integer getValue(HashMap<String, List<Long>> state) {
            return state.size();
        }

        public void accumulate(HashMap<String, List<Long>> state, String text, Long id) {
            state.computeIfAbsent(String.valueOf(text), each -> new ArrayList<>()).add(id);
        }
    }

    /** A POJO, which its own serializer writes. */
    public static class Totals {
        public long count;
        public double sum;
        public String text;
        public Map<String, Long> seen = new HashMap<>();
    }

    @FunctionHint(accumulator = @DataTypeHint(value = "RAW", bridgedTo = Totals.class))
    public static class ByPojo extends AggregateFunction<Long, Totals> {
        @Override public Totals createAccumulator() {
            return new Totals();
        }

        @Override public Long getValue(Totals state) {
            return state.count;
        }

        public void accumulate(Totals state, String text, Double amount) {
            state.count++;
            if (amount != null) state.sum += amount;
            state.text = text;
            state.seen.merge(String.valueOf(text), 1L, Long::sum);
        }
    }

    /** A POJO that SQL takes apart. */
    public static class Structured extends AggregateFunction<Long, Totals> {
        @Override public Totals createAccumulator() {
            return new Totals();
        }

        @Override public Long getValue(Totals state) {
            return state.count;
        }

        public void accumulate(Totals state, String text, Double amount) {
            new ByPojo().accumulate(state, text, amount);
        }
    }
}
