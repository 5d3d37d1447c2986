import java.util.Arrays;
import java.util.List;
import org.apache.flink.table.annotation.ArgumentHint;
import org.apache.flink.table.annotation.ArgumentTrait;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.annotation.StateHint;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.api.dataview.ListView;
import org.apache.flink.table.api.dataview.MapView;
import org.apache.flink.table.functions.ProcessTableFunction;
import org.apache.flink.types.Row;

/** Queries of what SQL has from Flink 2.1 on: variants, and process table functions with state. */
public final class SqlFromTwo extends SqlStates {
    @Override void register(StreamTableEnvironment tables) {
        super.register(tables);
        tables.createTemporarySystemFunction("remember", Remember.class);
        tables.executeSql("CREATE TEMPORARY VIEW variants AS SELECT id, grp, i, flag, TRY_PARSE_JSON(" + JSON + ") AS var FROM ev");
    }

    private static final String JSON = "CASE MOD(id, 6)"
        + " WHEN 0 THEN '{\"a\": ' || CAST(id AS STRING) || ', \"text\": \"' || COALESCE(v, 'none') || '\", \"list\": [1, -2.50, null, true, {\"deep\": [[], {}]}], \"big\": 123456789012345678901234567890.12345}'"
        + " WHEN 1 THEN CAST(id * 1000003 AS STRING) WHEN 2 THEN '\"' || COALESCE(v, '') || '\"' WHEN 3 THEN 'null'"
        + " WHEN 4 THEN '[1.5e300, 1e-7, 0.1, -0, false, 9223372036854775807, \"\\\\u00e9\\\\n\\\\\"\"]'"
        + " ELSE '{\"zz\": {\"a\": {\"b\": [' || CAST(amt AS STRING) || ', 7]}}, \"\": 1, \"k\u00e9y\": \"\ud83d\ude00\"}' END";

    @Override List<String> queries(String name) {
        switch (name) {
            case "variant": return Arrays.asList(
                "SELECT * FROM (SELECT id, grp, var, ROW_NUMBER() OVER (PARTITION BY grp ORDER BY id DESC) AS n FROM variants) WHERE n <= 3",
                "SELECT i, FIRST_VALUE(id), COUNT(*), LAST_VALUE(id) FROM variants GROUP BY i",
                "SELECT x.id, x.var, y.flag FROM variants x JOIN ev y ON x.id = y.id + 1");
            case "ptf": return Arrays.asList(
                "SELECT * FROM remember(rows_in => TABLE ev PARTITION BY grp, uid => 'remember')");
            case "multi-join": return Arrays.asList(
                "SELECT x.id, y.v, z.price, w.ts9 FROM newer x LEFT JOIN newest y ON x.grp = y.grp JOIN newer z ON x.grp = z.grp LEFT JOIN newer w ON x.grp = w.grp AND w.flag");
            default: return super.queries(name);
        }
    }

    /** A function with a state of each kind. */
    public static class Remember extends ProcessTableFunction<String> {
        public static class Memory {
            public long count;
            public String last;
            public Double sum = 0.0;
        }

        public void eval(Context context, @StateHint(name = "memory") Memory memory,
                @StateHint(name = "seen") MapView<String, Long> seen, @StateHint(name = "rows") ListView<Row2> rows,
                @StateHint(name = "kept", type = @DataTypeHint("ROW<a BIGINT, b DECIMAL(20, 3)>")) Row kept,
                @ArgumentHint(name = "rows_in", value = {ArgumentTrait.SET_SEMANTIC_TABLE}) Row rowsIn) throws Exception {
            memory.count++;
            memory.last = rowsIn.getFieldAs("v");
            Double amount = rowsIn.getFieldAs("amt");
            if (amount != null) memory.sum += amount;
            String text = String.valueOf(memory.last);
            Long before = seen.get(text);
            seen.put(text, before == null ? 1 : before + 1);
            Row2 row = new Row2();
            row.id = rowsIn.<Long>getFieldAs("id");
            row.text = memory.last;
            rows.add(row);
            kept.setField("a", row.id);
            collect(text);
        }

        public static class Row2 {
            public long id;
            public String text;
        }
    }
}
