import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.types.DataType;
import org.apache.flink.types.Row;

/**
 * State of SQL operators. The option query picks one: types, group, distinct, mini-batch, window, top, deduplicate, over,
 * interval-join, temporal-join, functions, retract, joins, tvf or match. The option set has options of SQL, such as
 * {@code a=1#b=2}.
 */
public class SqlStates implements Job {
    private String query;

    static final LocalDateTime START = LocalDateTime.of(2024, 1, 1, 0, 0);

    /** Columns of the table that the queries read. */
    static final Object[][] COLUMNS = {
        {"id", DataTypes.BIGINT().notNull()},
        {"grp", DataTypes.STRING()},
        {"amt", DataTypes.DOUBLE()},
        {"price", DataTypes.DECIMAL(12, 2)},
        {"exact", DataTypes.DECIMAL(38, 10)},
        {"ts", DataTypes.TIMESTAMP(3)},
        {"ts6", DataTypes.TIMESTAMP(6)},
        {"ts9", DataTypes.TIMESTAMP(9)},
        {"ltz3", DataTypes.TIMESTAMP_LTZ(3)},
        {"ltz9", DataTypes.TIMESTAMP_LTZ(9)},
        {"d", DataTypes.DATE()},
        {"t", DataTypes.TIME(3)},
        {"flag", DataTypes.BOOLEAN()},
        {"tiny", DataTypes.TINYINT()},
        {"small", DataTypes.SMALLINT()},
        {"i", DataTypes.INT()},
        {"f", DataTypes.FLOAT()},
        {"c5", DataTypes.CHAR(5)},
        {"v", DataTypes.VARCHAR(40)},
        {"b", DataTypes.BYTES()},
        {"b4", DataTypes.BINARY(4)},
        {"ints", DataTypes.ARRAY(DataTypes.INT())},
        {"texts", DataTypes.ARRAY(DataTypes.STRING())},
        {"attrs", DataTypes.MAP(DataTypes.STRING(), DataTypes.DECIMAL(20, 3))},
        {"bag", DataTypes.MULTISET(DataTypes.STRING())},
        {"pair", DataTypes.ROW(DataTypes.FIELD("x", DataTypes.INT()), DataTypes.FIELD("y", DataTypes.ARRAY(DataTypes.ROW(DataTypes.FIELD("z", DataTypes.STRING())))))},
    };

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().set("table.local-time-zone", "UTC");
        query = options.get("query");
        if (options.getOrDefault("mini-batch", "false").equals("true")) {
            tables.getConfig().set("table.exec.mini-batch.enabled", "true");
            tables.getConfig().set("table.exec.mini-batch.allow-latency", "10 ms");
            tables.getConfig().set("table.exec.mini-batch.size", "7");
        }
        if (options.containsKey("ttl")) tables.getConfig().set("table.exec.state.ttl", options.get("ttl"));
        String[] names = new String[COLUMNS.length];
        Schema.Builder schema = Schema.newBuilder();
        TypeInformation<?>[] types = new TypeInformation<?>[COLUMNS.length];
        for (int i = 0; i < COLUMNS.length; i++) {
            names[i] = (String) COLUMNS[i][0];
            DataType type = (DataType) COLUMNS[i][1];
            types[i] = org.apache.flink.table.runtime.typeutils.ExternalTypeInfo.of(type);
            schema.column(names[i], type);
        }
        schema.watermark("ts", "ts - INTERVAL '2' SECOND");
        DataStream<Row> rows = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src")
            .map(SqlStates::row).returns(Types.ROW_NAMED(names, types)).setParallelism(1).uid("rows");
        tables.createTemporaryView("ev", rows, schema.build());
        tables.executeSql("CREATE TEMPORARY VIEW newest AS SELECT grp, v, amt, ts FROM"
            + " (SELECT *, ROW_NUMBER() OVER (PARTITION BY grp ORDER BY ts DESC) AS n FROM ev) WHERE n = 1");
        tables.executeSql("CREATE TEMPORARY VIEW newer AS SELECT grp, id, flag, v, d, exact, ts6, ts9, t, b, i, price FROM"
            + " (SELECT *, ROW_NUMBER() OVER (PARTITION BY i ORDER BY id DESC) AS n FROM ev) WHERE n <= 3");
        register(tables);
        if (options.containsKey("set"))
            for (String each : options.get("set").split("#")) tables.getConfig().set(each.split("=", 2)[0], each.split("=", 2)[1]);
        for (String each : queries(query)) tables.toChangelogStream(tables.sqlQuery(each)).sinkTo(new DiscardingSink<>());
    }

    /** Registers functions, and views of the table {@code ev}. */
    void register(StreamTableEnvironment tables) {
        SqlFunctions.register(tables);
    }

    List<String> queries(String name) {
        switch (name) {
            case "types": return Arrays.asList(
                "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY grp ORDER BY id DESC) AS n FROM ev) WHERE n <= 2",
                "SELECT x.*, y.id AS other FROM (SELECT * FROM ev) x JOIN (SELECT id, flag FROM ev) y ON x.id = y.id + 1 AND x.flag = y.flag",
                "SELECT grp, exact, ts6, ltz9, d, t, c5, b4, COUNT(*) FROM ev GROUP BY grp, exact, ts6, ltz9, d, t, c5, b4");
            case "group": return Arrays.asList(
                "SELECT grp, COUNT(*), SUM(amt), AVG(price), MAX(exact), MIN(ts9), MAX(v), FIRST_VALUE(v), LAST_VALUE(id), LISTAGG(v), STDDEV_POP(amt), COLLECT(c5) FROM ev GROUP BY grp",
                "SELECT flag, MAX(id), MIN(d), SUM(exact) FROM (SELECT id, MAX(flag) AS flag, MAX(d) AS d, MAX(exact) AS exact FROM ev GROUP BY id) GROUP BY flag");
            case "distinct": return Arrays.asList(
                "SELECT grp, COUNT(DISTINCT i), COUNT(DISTINCT v) FILTER (WHERE flag), SUM(DISTINCT price), COUNT(DISTINCT ts6) FROM ev GROUP BY grp");
            case "window": return Arrays.asList(
                "SELECT grp, window_start, window_end, COUNT(*), SUM(amt) FROM TABLE(TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '60' SECOND)) GROUP BY grp, window_start, window_end",
                "SELECT grp, window_start, window_end, MAX(price) FROM TABLE(HOP(TABLE ev, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '60' SECOND)) GROUP BY grp, window_start, window_end",
                "SELECT flag, SESSION_START(ts, INTERVAL '3' SECOND), COUNT(*), LISTAGG(v) FROM ev WHERE MOD(id, 30) < 20 GROUP BY flag, SESSION(ts, INTERVAL '3' SECOND)");
            case "top": return Arrays.asList(
                "SELECT grp, id, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY grp ORDER BY price DESC, id) AS n FROM ev) WHERE n <= 3",
                "SELECT grp, s FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY s DESC) AS n FROM (SELECT grp, SUM(amt) AS s FROM ev GROUP BY grp)) WHERE n <= 4");
            case "deduplicate": return Arrays.asList(
                "SELECT * FROM (SELECT id, grp, v, ts, ROW_NUMBER() OVER (PARTITION BY grp ORDER BY ts DESC) AS n FROM ev) WHERE n = 1",
                "SELECT * FROM (SELECT id, flag, c5, ts, ROW_NUMBER() OVER (PARTITION BY flag ORDER BY ts ASC) AS n FROM ev) WHERE n = 1");
            case "over": return Arrays.asList(
                "SELECT id, SUM(amt) OVER (PARTITION BY grp ORDER BY ts RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT ROW), COUNT(*) OVER (PARTITION BY grp ORDER BY ts RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT ROW) FROM ev",
                "SELECT id, MAX(price) OVER (PARTITION BY flag ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM ev",
                "SELECT id, SUM(i) OVER (PARTITION BY flag ORDER BY ts) FROM ev");
            case "interval-join": return Arrays.asList(
                "SELECT x.id, y.v FROM ev x JOIN ev y ON x.grp = y.grp AND x.ts BETWEEN y.ts - INTERVAL '10' SECOND AND y.ts + INTERVAL '5' SECOND");
            case "temporal-join": return Arrays.asList(
                "SELECT x.id, y.v FROM ev x LEFT JOIN newest FOR SYSTEM_TIME AS OF x.ts AS y ON x.grp = y.grp",
                "SELECT x.id, y.id, y.amt FROM ev x LEFT JOIN (SELECT * FROM ev WHERE flag) y ON x.i = y.i");
            case "functions": return Arrays.asList(
                "SELECT grp, viewed(v, id, amt), COUNT(DISTINCT i) FROM ev GROUP BY grp",
                "SELECT flag, only_views(i, c5) FROM ev GROUP BY flag",
                "SELECT tiny, by_kryo(v, id), by_pojo(v, amt) FROM ev GROUP BY tiny",
                "SELECT i, by_fields(v, amt), viewed(c5, id, amt) FROM ev GROUP BY i");
            case "retract": return Arrays.asList(
                "SELECT flag, MAX(id), MIN(d), MAX(exact), LISTAGG(v), LISTAGG(DISTINCT v), FIRST_VALUE(v), LAST_VALUE(exact), COUNT(DISTINCT ts6), SUM(DISTINCT exact) FILTER (WHERE id > 3) FROM newer GROUP BY flag",
                "SELECT MIN(v), MAX(price), FIRST_VALUE(price), LAST_VALUE(i) FROM newer GROUP BY MOD(id, 3)",
                "SELECT v, JSON_ARRAYAGG(id), COLLECT(DISTINCT i), ARRAY_AGG(price) FROM newer GROUP BY v");
            case "joins": return Arrays.asList(
                "SELECT x.id, y.v FROM newer x LEFT JOIN newest y ON x.v = y.v",
                "SELECT x.id, y.v, y.amt FROM ev x FULL JOIN newest y ON x.grp = y.grp AND x.amt > y.amt",
                "SELECT x.id, x.pair FROM ev x WHERE x.i IN (SELECT i FROM newer WHERE flag)",
                "SELECT x.id, x.ts9 FROM ev x WHERE NOT EXISTS (SELECT * FROM newest y WHERE y.v = x.v)",
                "SELECT x.id, y.id FROM newer x JOIN newer y ON x.id = y.id");
            case "tvf": return Arrays.asList(
                "SELECT grp, window_start, COUNT(DISTINCT i), MAX(v) FROM TABLE(CUMULATE(TABLE ev, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '60' SECOND)) GROUP BY grp, window_start, window_end",
                "SELECT grp, window_start, COUNT(*), LISTAGG(v) FROM TABLE(SESSION(TABLE ev PARTITION BY grp, DESCRIPTOR(ts), INTERVAL '8' SECOND)) GROUP BY grp, window_start, window_end",
                "SELECT * FROM (SELECT grp, price, window_start, window_end, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, grp ORDER BY price DESC) AS n FROM TABLE(TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '60' SECOND))) WHERE n <= 2",
                "SELECT x.id, y.v FROM TABLE(TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '60' SECOND)) x JOIN TABLE(TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '60' SECOND)) y ON x.i = y.i AND x.window_start = y.window_start AND x.window_end = y.window_end",
                "SELECT flag, SUM(exact), COUNT(DISTINCT v) FROM ev GROUP BY flag, HOP(ts, INTERVAL '20' SECOND, INTERVAL '60' SECOND)");
            case "match": return Arrays.asList(
                "SELECT * FROM ev MATCH_RECOGNIZE (PARTITION BY flag ORDER BY ts MEASURES A.id AS first_id, LAST(B.v) AS v AFTER MATCH SKIP PAST LAST ROW PATTERN (A B{3} C) WITHIN INTERVAL '40' SECOND DEFINE B AS B.amt > A.amt, C AS C.tiny < 0)",
                "SELECT id, COUNT(DISTINCT i) OVER w, FIRST_VALUE(v) OVER w, LISTAGG(c5) OVER w FROM ev WINDOW w AS (PARTITION BY grp ORDER BY ts RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT ROW)",
                "SELECT id, v FROM ev ORDER BY ts");
            default: throw new IllegalArgumentException(name);
        }
    }

    /** The join's records and the groups' counts of the query "types"; other queries have no truth. */
    @Override public void derive(long events) {
        String join = operator("Join["), group = operator("GroupAggregate[");
        if (join == null || group == null || !"types".equals(query)) return;
        for (long id = 0; id < events; id++) {
            Row row = row(id);
            Object flag = row.getField(12);
            Truth.put(join, "left-records", "map", Arrays.asList(id, flag), null, Arrays.asList(Arrays.asList(row, 1)));
            Truth.put(join, "right-records", "map", Arrays.asList(id + 1, flag), null, Arrays.asList(Arrays.asList(Arrays.asList(id, flag, id + 1), 1)));
            Object[] keys = new Object[8];
            int[] columns = {1, 4, 6, 9, 10, 11, 17, 20};
            for (int i = 0; i < keys.length; i++) keys[i] = row.getField(columns[i]);
            Truth.put(group, "accState", "value", Arrays.asList(keys), null, Arrays.asList(1));
        }
    }

    private static String operator(String prefix) {
        return RunJob.NAMES.entrySet().stream().filter(each -> each.getKey().startsWith(prefix)).map(Map.Entry::getValue).findFirst().orElse(null);
    }

    static Row row(long id) {
        int i = (int) id;
        Map<String, BigDecimal> attrs = new HashMap<>();
        for (int n = 0; n < i % 4; n++) attrs.put("a" + n, n == 2 ? null : BigDecimal.valueOf(id * 1000 - n, 3));
        Map<String, Integer> bag = new HashMap<>();
        bag.put("b" + i % 2, 1 + i % 3);
        List<Row> deep = new ArrayList<>();
        for (int n = 0; n < i % 3; n++) deep.add(n == 1 ? null : Row.of(n == 0 && i % 2 == 0 ? null : "z-is-longer-than-seven-" + id));
        LocalDateTime at = START.plusSeconds(id);
        return Row.of(id,
            id % 7 == 3 ? null : id % 2 == 0 ? "g" + id % 5 : "a-longer-group-" + id % 3,
            id % 5 == 4 ? null : id * 0.25,
            BigDecimal.valueOf(id * 101 - 999, 2),
            id % 6 == 5 ? null : new BigDecimal("-1234567890123456789012345678.0123456789").add(BigDecimal.valueOf(id)),
            at,
            id % 4 == 3 ? null : at.minusYears(60).plusNanos(id * 1_000),
            at.plusNanos(id * 1_001_001),
            Instant.ofEpochMilli(1_700_000_000_123L - id * 10_000_000_000L),
            id % 4 == 2 ? null : Instant.ofEpochSecond(-id * 100_000_000L, 123_456_789),
            LocalDate.of(1969, 12, 20).plusDays(id),
            LocalTime.ofNanoOfDay(id * 997_000_000L % 86_400_000_000_000L),
            id % 3 == 0 ? (Boolean) true : id % 3 == 1 ? (Boolean) false : id % 2 == 0,
            (byte) (i * 3), (short) (i * -301), i % 13, i * 0.5f,
            String.format("%-5s", "c" + i % 8),
            id % 8 == 7 ? null : "v\u00e4lue-" + "x".repeat(i % 20),
            id % 3 == 2 ? null : ("bytes" + id).getBytes(StandardCharsets.UTF_8),
            new byte[] {(byte) i, 0, -1, 4},
            id % 3 == 1 ? null : i % 5 == 0 ? new Integer[0] : new Integer[] {i, null, -i},
            new String[] {"s" + i, null, "a string that is long"},
            attrs,
            bag,
            id % 9 == 8 ? null : Row.of(i, deep.toArray(new Row[0])));
    }
}
