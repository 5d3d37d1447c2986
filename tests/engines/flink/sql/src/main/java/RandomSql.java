import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.time.DayOfWeek;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.Period;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.EnumSerializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamStatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.runtime.typeutils.ExternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.DecimalType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.LogicalTypeRoot;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/**
 * SQL over a table of random columns: its state is of random types, in rows, keys, accumulators and buffers.
 *
 * Options: seed; queries (names with + between, or all, which are all but those of look-ups that wait for ever); set, options of SQL, such as {@code a=1#b=2}. A query that this release does
 * not plan is left out and named in the log. The truth is what {@code DumpSavepoint} reads in a savepoint.
 */
public class RandomSql implements Job {
    private static final LocalDateTime START = LocalDateTime.of(2024, 1, 1, 0, 0);

    private final List<String> names = new ArrayList<>();
    private final List<DataType> types = new ArrayList<>();
    private Random random;

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        long seed = Long.parseLong(options.getOrDefault("seed", "1"));
        columns(new Random(seed));
        random = new Random(seed + 1);
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().set("table.local-time-zone", "UTC");
        if (options.containsKey("set"))
            for (String each : options.get("set").split("#")) tables.getConfig().set(each.split("=", 2)[0], each.split("=", 2)[1]);
        tables(env, tables, seed);
        SqlFunctions.register(tables);
        tables.executeSql("CREATE TEMPORARY TABLE by_g (g STRING NOT NULL, k INT, v STRING, x DOUBLE, PRIMARY KEY (g) NOT ENFORCED) WITH ('connector' = 'blackhole')");
        tables.getConfig().set("table.exec.sink.not-null-enforcer", "DROP");
        tables.registerCatalog("dims", new WaitingDims());
        for (String each : new String[] {"quick", "async"})
            tables.executeSql("CREATE TABLE dims.`default`." + each + " (k INT, name STRING, PRIMARY KEY (k) NOT ENFORCED)");
        register(tables);
        List<String> asked = Arrays.asList(options.getOrDefault("queries", "all").split("\\+"));
        StreamStatementSet sinks = tables.createStatementSet();
        boolean inserts = false;
        for (String[] query : queries()) {
            if (!asked.contains(query[0]) && (!asked.contains("all") || query[0].startsWith("lookup-async"))) continue;
            try {
                if (query[1].startsWith("INSERT")) {
                    sinks.addInsertSql(query[1]);
                    inserts = true;
                } else tables.toChangelogStream(tables.sqlQuery(query[1])).sinkTo(new DiscardingSink<>());
            } catch (RuntimeException e) {
                System.out.println("NOT PLANNED " + query[0] + ": " + query[1] + ": " + reason(e));
            }
        }
        if (inserts) sinks.attachAsDataStream();
    }

    /** Registers what newer releases alone have. */
    void register(StreamTableEnvironment tables) {}

    private static String reason(Throwable e) {
        return e.getCause() == null ? String.valueOf(e.getMessage()).split("\n")[0] : reason(e.getCause());
    }

    // The tables: ev, ups (changes by a primary key), newest (a version for each k), newer (changes without a key).

    private void columns(Random random) {
        column("id", DataTypes.BIGINT().notNull());
        column("k", DataTypes.INT().notNull());
        column("g", DataTypes.STRING());
        column("x", DataTypes.DOUBLE());
        column("v", DataTypes.VARCHAR(30));
        column("b", DataTypes.BOOLEAN());
        column("ts", DataTypes.TIMESTAMP(3));
        int count = 6 + random.nextInt(5);
        for (int i = 0; i < count; i++) column("c" + i, type(random, i < 4 ? 9 : 0));
    }

    private void column(String name, DataType type) {
        names.add(name);
        types.add(type);
    }

    private void tables(StreamExecutionEnvironment env, StreamTableEnvironment tables, long seed) {
        String[] names = this.names.toArray(new String[0]);
        TypeInformation<?>[] infos = types.stream().map(ExternalTypeInfo::of).toArray(TypeInformation<?>[]::new);
        RowMaker maker = new RowMaker(types.toArray(new DataType[0]), seed);
        Schema.Builder schema = Schema.newBuilder();
        for (int i = 0; i < names.length; i++) schema.column(names[i], types.get(i));
        DataStream<Long> ids = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src");
        DataStream<Row> rows = ids.map(maker::row).returns(Types.ROW_NAMED(names, infos)).setParallelism(1).uid("rows");
        tables.createTemporaryView("ev", rows, schema.columnByExpression("pt", "PROCTIME()").watermark("ts", "ts - INTERVAL '2' SECOND").build());
        Schema.Builder keyed = Schema.newBuilder();
        for (int i = 0; i < names.length; i++) keyed.column(names[i], types.get(i));
        DataStream<Row> changes = ids.map(maker::change).returns(Types.ROW_NAMED(names, infos)).setParallelism(1).uid("changes");
        tables.createTemporaryView("ups", tables.fromChangelogStream(changes, keyed.watermark("ts", "ts - INTERVAL '2' SECOND").primaryKey("k").build(), ChangelogMode.upsert()));
        tables.executeSql("CREATE TEMPORARY VIEW newest AS SELECT " + String.join(", ", this.names) + " FROM"
            + " (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM ev) WHERE n = 1");
        tables.executeSql("CREATE TEMPORARY VIEW newer AS SELECT " + String.join(", ", this.names) + " FROM"
            + " (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id DESC) AS n FROM ev) WHERE n <= 3");
    }

    /** Rows of numbers, by the seed. */
    static final class RowMaker implements java.io.Serializable {
        private final DataType[] types;
        private final long seed;

        RowMaker(DataType[] types, long seed) {
            this.types = types;
            this.seed = seed;
        }

        Row row(Long id) {
            Random random = new Random(seed * 1_000_003 + id);
            random.nextInt();
            Row row = new Row(types.length);
            row.setField(0, id);
            row.setField(1, random.nextInt(7));
            row.setField(2, random.nextInt(8) == 0 ? null : random.nextBoolean() ? "g" + random.nextInt(4) : "a-longer-group-" + random.nextInt(3));
            row.setField(3, random.nextInt(6) == 0 ? null : (Double) (random.nextInt(400) * 0.25));
            row.setField(4, random.nextInt(6) == 0 ? null : "v\u00e4" + "x".repeat(random.nextInt(9)) + random.nextInt(5));
            row.setField(5, random.nextInt(6) == 0 ? null : (Boolean) random.nextBoolean());
            row.setField(6, START.plusSeconds(id));
            for (int i = 7; i < types.length; i++) row.setField(i, value(types[i], new Random(random.nextInt(12) * 31L + i)));
            return row;
        }

        /** A change of the row of a key, sometimes its end. */
        Row change(Long id) {
            Row row = row(id);
            row.setKind(id % 11 == 7 ? RowKind.DELETE : id % 3 == 0 ? RowKind.INSERT : RowKind.UPDATE_AFTER);
            return row;
        }
    }

    // Random types and values

    private static DataType type(Random random, int depth) {
        DataType found = depth > 2 ? leaf(random) : random.nextInt(3) == 0 ? leaf(random) : nested(random, depth);
        return random.nextInt(4) == 0 ? found.notNull() : found.nullable();
    }

    private static DataType nested(Random random, int depth) {
        switch (random.nextInt(5)) {
            case 0: return DataTypes.ARRAY(type(random, depth + 1));
            case 1: return DataTypes.MAP(keyLeaf(random), type(random, depth + 1));
            case 2: return DataTypes.MULTISET(keyLeaf(random).notNull());
            default:
                int count = 1 + random.nextInt(4);
                DataTypes.Field[] fields = new DataTypes.Field[count];
                for (int i = 0; i < count; i++) fields[i] = DataTypes.FIELD("f" + i, type(random, depth + 1));
                return DataTypes.ROW(fields);
        }
    }

    private static DataType keyLeaf(Random random) {
        switch (random.nextInt(6)) {
            case 0: return DataTypes.INT();
            case 1: return DataTypes.BIGINT().notNull();
            case 2: return DataTypes.DECIMAL(10 + random.nextInt(20), 2);
            case 3: return DataTypes.TIMESTAMP(random.nextInt(10));
            case 4: return DataTypes.DATE().notNull();
            default: return DataTypes.STRING();
        }
    }

    private static DataType leaf(Random random) {
        switch (random.nextInt(24)) {
            case 0: return DataTypes.BOOLEAN();
            case 1: return DataTypes.TINYINT();
            case 2: return DataTypes.SMALLINT();
            case 3: return DataTypes.INT();
            case 4: return DataTypes.BIGINT();
            case 5: return DataTypes.FLOAT();
            case 6: return DataTypes.DOUBLE();
            case 7: case 8: case 9: {
                int precision = 1 + random.nextInt(38);
                return DataTypes.DECIMAL(precision, random.nextInt(precision + 1));
            }
            case 10: return DataTypes.CHAR(1 + random.nextInt(12));
            case 11: return DataTypes.VARCHAR(1 + random.nextInt(12));
            case 12: return DataTypes.STRING();
            case 13: return DataTypes.BINARY(1 + random.nextInt(12));
            case 14: return DataTypes.VARBINARY(1 + random.nextInt(12));
            case 15: return DataTypes.DATE();
            case 16: return DataTypes.TIME(random.nextInt(4));
            case 17: case 18: return DataTypes.TIMESTAMP(random.nextInt(10));
            case 19: case 20: return DataTypes.TIMESTAMP_LTZ(random.nextInt(10));
            case 21: return DataTypes.INTERVAL(DataTypes.YEAR(4), DataTypes.MONTH());
            case 22: return DataTypes.INTERVAL(DataTypes.DAY(6), DataTypes.SECOND(3));
            default: return DataTypes.RAW(DayOfWeek.class, new EnumSerializer<>(DayOfWeek.class));
        }
    }

    static Object value(DataType type, Random random) {
        LogicalType logical = type.getLogicalType();
        if (logical.isNullable() && random.nextInt(6) == 0) return null;
        switch (logical.getTypeRoot()) {
            case BOOLEAN: return random.nextBoolean();
            case TINYINT: return (byte) random.nextInt();
            case SMALLINT: return (short) random.nextInt();
            case INTEGER: return random.nextInt();
            case BIGINT: return random.nextLong();
            case FLOAT: return (float) random.nextInt(1000) / 8;
            case DOUBLE: return random.nextInt(20) == 0 ? Double.NaN : random.nextGaussian() * 1e9;
            case DECIMAL: {
                DecimalType decimal = (DecimalType) logical;
                BigInteger digits = new BigInteger(130, random).mod(BigInteger.TEN.pow(1 + random.nextInt(decimal.getPrecision())));
                return new BigDecimal(random.nextBoolean() ? digits : digits.negate(), decimal.getScale());
            }
            case CHAR: return text(random, org.apache.flink.table.types.logical.utils.LogicalTypeChecks.getLength(logical), true);
            case VARCHAR: return text(random, Math.min(25, org.apache.flink.table.types.logical.utils.LogicalTypeChecks.getLength(logical)), false);
            case BINARY: return bytes(random, org.apache.flink.table.types.logical.utils.LogicalTypeChecks.getLength(logical));
            case VARBINARY: return bytes(random, random.nextInt(1 + org.apache.flink.table.types.logical.utils.LogicalTypeChecks.getLength(logical)));
            case DATE: return LocalDate.ofEpochDay(random.nextInt(60000) - 30000);
            case TIME_WITHOUT_TIME_ZONE: return LocalTime.ofNanoOfDay(random.nextInt(86_400_000) * 1_000_000L);
            case TIMESTAMP_WITHOUT_TIME_ZONE: return LocalDateTime.ofInstant(moment(logical, random), ZoneOffset.UTC);
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE: return moment(logical, random);
            case INTERVAL_YEAR_MONTH: return Period.ofMonths(random.nextInt(20000) - 10000).normalized();
            case INTERVAL_DAY_TIME: return Duration.ofMillis(random.nextLong() % 80_000_000_000_000L);
            case RAW: return DayOfWeek.of(1 + random.nextInt(7));
            case ARRAY: {
                DataType element = type.getChildren().get(0);
                Object[] found = (Object[]) java.lang.reflect.Array.newInstance(boxed(element), random.nextInt(4));
                for (int i = 0; i < found.length; i++) found[i] = value(element, random);
                return element.getConversionClass().isPrimitive() ? Arrays.asList(found) : found;
            }
            case MAP: case MULTISET: {
                Map<Object, Object> found = new HashMap<>();
                int count = random.nextInt(4);
                for (int i = 0; i < count; i++)
                    found.put(value(type.getChildren().get(0), random), logical.is(LogicalTypeRoot.MAP) ? value(type.getChildren().get(1), random) : (Object) (1 + random.nextInt(3)));
                return found;
            }
            case ROW: {
                Object[] fields = type.getChildren().stream().map(each -> value(each, random)).toArray();
                return Row.of(fields);
            }
            default: throw new IllegalArgumentException(logical.toString());
        }
    }

    private static Class<?> boxed(DataType type) {
        Class<?> found = type.getConversionClass();
        return found.isPrimitive() ? Object.class : found;
    }

    private static Instant moment(LogicalType type, Random random) {
        int digits = org.apache.flink.table.types.logical.utils.LogicalTypeChecks.getPrecision(type);
        long step = BigInteger.TEN.pow(9 - digits).longValue();
        return Instant.ofEpochSecond(random.nextInt(), random.nextInt(1_000_000_000) / step * step);
    }

    private static String text(Random random, int length, boolean whole) {
        StringBuilder found = new StringBuilder();
        int[] letters = {'a', 'b', 'z', ' ', '"', '\\', 0xe9, 0x4e2d, 0x1f600};
        int count = whole ? length : random.nextInt(length + 1);
        for (int i = 0; i < count; i++) found.appendCodePoint(letters[random.nextInt(letters.length)]);
        return found.toString();
    }

    private static byte[] bytes(Random random, int length) {
        byte[] found = new byte[length];
        random.nextBytes(found);
        return found;
    }

    // Queries: each a name and its text; the columns are drawn

    private boolean is(int column, LogicalTypeRoot... roots) {
        return Arrays.asList(roots).contains(types.get(column).getLogicalType().getTypeRoot());
    }

    private String one(boolean plain) {
        while (true) {
            int column = 7 + random.nextInt(types.size() - 7);
            if (!plain || !is(column, LogicalTypeRoot.MAP, LogicalTypeRoot.MULTISET, LogicalTypeRoot.RAW, LogicalTypeRoot.ROW, LogicalTypeRoot.ARRAY,
                LogicalTypeRoot.BINARY, LogicalTypeRoot.VARBINARY, LogicalTypeRoot.INTERVAL_DAY_TIME, LogicalTypeRoot.INTERVAL_YEAR_MONTH)) return names.get(column);
        }
    }

    /** Some columns, of types that have an order if plain. */
    private String some(int count, boolean plain) {
        List<String> found = new ArrayList<>();
        for (int i = 0; i < count; i++) found.add(one(plain));
        return found.stream().distinct().collect(Collectors.joining(", "));
    }

    private String all(String table) {
        return names.stream().map(each -> table + "." + each).collect(Collectors.joining(", "));
    }

    final List<String[]> queries = new ArrayList<>();

    void add(String name, String text) {
        queries.add(new String[] {name, text});
    }

    List<String[]> queries() {
        String columns = String.join(", ", names);
        add("top", "SELECT * FROM (SELECT " + columns + ", ROW_NUMBER() OVER (PARTITION BY " + some(2, false) + " ORDER BY id DESC) AS n FROM ev) WHERE n <= 2");
        add("top-one", "SELECT * FROM (SELECT k, " + some(3, true) + ", ROW_NUMBER() OVER (PARTITION BY " + one(true) + " ORDER BY x, id) AS n FROM ev) WHERE n = 1");
        add("top-changed", "SELECT g, s FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY s DESC) AS n FROM (SELECT g, SUM(x) AS s FROM ev GROUP BY g)) WHERE n <= 3");
        add("top-retracted", "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY b ORDER BY x DESC) AS n FROM newer) WHERE n <= 2");
        add("last-row", "SELECT * FROM (SELECT " + columns + ", ROW_NUMBER() OVER (PARTITION BY " + some(2, true) + " ORDER BY ts DESC) AS n FROM ev) WHERE n = 1");
        add("first-row", "SELECT * FROM (SELECT " + columns + ", ROW_NUMBER() OVER (PARTITION BY " + some(2, true) + " ORDER BY ts) AS n FROM ev) WHERE n = 1");
        add("last-row-now", "SELECT * FROM (SELECT " + columns + ", ROW_NUMBER() OVER (PARTITION BY g ORDER BY pt DESC) AS n FROM ev) WHERE n = 1");
        add("first-row-now", "SELECT * FROM (SELECT " + columns + ", ROW_NUMBER() OVER (PARTITION BY v ORDER BY pt) AS n FROM ev) WHERE n = 1");
        for (int i = 0; i < 3; i++) {
            String a = one(true), b = one(true), c = one(false);
            add("group", "SELECT " + a + ", COUNT(*), MAX(" + b + "), MIN(" + b + "), COUNT(DISTINCT " + b + ") FILTER (WHERE x > 20), SUM(x), AVG(x) FROM ev GROUP BY " + a);
            add("first-last", "SELECT k, FIRST_VALUE(" + b + "), LAST_VALUE(" + b + "), COUNT(" + c + ") FROM ev GROUP BY k");
            add("collect", "SELECT k, COLLECT(" + b + "), COLLECT(DISTINCT " + a + ") FROM ev GROUP BY k");
            add("array-agg", "SELECT g, ARRAY_AGG(" + c + ") FROM ev GROUP BY g");
            add("retract", "SELECT b, MAX(" + a + "), MIN(" + b + "), FIRST_VALUE(" + a + "), LAST_VALUE(" + b + "), COUNT(DISTINCT " + a + "), SUM(DISTINCT x) FILTER (WHERE id > 3) FROM newer GROUP BY b");
            add("retract-array", "SELECT b, ARRAY_AGG(" + a + "), LISTAGG(v), COLLECT(" + b + ") FROM newer GROUP BY b");
            add("group-by", "SELECT COUNT(*) FROM ev GROUP BY " + some(3, false));
        }
        add("texts", "SELECT k, LISTAGG(v), LISTAGG(DISTINCT g, '; '), JSON_OBJECTAGG(KEY CAST(id AS STRING) VALUE v), JSON_ARRAYAGG(x), JSON_ARRAYAGG(v NULL ON NULL) FROM ev GROUP BY k");
        add("texts-retract", "SELECT b, JSON_OBJECTAGG(KEY CAST(id AS STRING) VALUE v NULL ON NULL), JSON_ARRAYAGG(v) FROM newer GROUP BY b");
        add("statistics", "SELECT g, STDDEV_POP(x), VAR_SAMP(x), AVG(k), SUM(id), MAX(ts), SINGLE_VALUE(k) FROM ev GROUP BY g, id");
        add("sets", "SELECT k, b, COUNT(*), COUNT(DISTINCT v) FROM ev GROUP BY GROUPING SETS ((k), (b), ())");
        add("distinct", "SELECT DISTINCT " + some(3, true) + " FROM ev");
        add("union", "SELECT k, v FROM ev UNION SELECT k, g FROM ev");
        add("minus", "SELECT k, v FROM newer EXCEPT SELECT k, v FROM newest");
        add("functions", "SELECT g, viewed(v, id, x), COUNT(DISTINCT k), only_views(k, v) FROM ev GROUP BY g");
        add("functions", "SELECT b, by_kryo(v, id), by_pojo(v, x), by_fields(v, x) FROM ev GROUP BY b");
        String[] joins = {"JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"};
        String key = one(true);
        add("join", "SELECT l.id, r.x FROM ev l " + joins[random.nextInt(4)] + " ev r ON l." + key + " = r." + key);
        add("join-unique", "SELECT " + all("l") + ", r.x FROM ev l " + joins[random.nextInt(4)] + " newest r ON l." + key + " = r." + key + " AND l.x > r.x");
        add("join-key", "SELECT l.id, " + all("r") + " FROM newer l " + joins[random.nextInt(4)] + " newest r ON l.k = r.k");
        add("join-keys", "SELECT l.id, r.id FROM ups l " + joins[random.nextInt(4)] + " newest r ON l.k = r.k");
        add("semi", "SELECT " + all("l") + " FROM ev l WHERE l." + key + " IN (SELECT " + key + " FROM newer WHERE x > 10)");
        add("anti", "SELECT l.id, l.v FROM newer l WHERE NOT EXISTS (SELECT * FROM newest r WHERE r." + key + " = l." + key + ")");
        add("normalize", "SELECT " + columns + " FROM ups");
        add("normalize", "SELECT b, COUNT(*), MAX(" + one(true) + ") FROM ups WHERE x > 5 GROUP BY b");
        add("interval", "SELECT l.id, r.v FROM ev l " + joins[random.nextInt(4)] + " ev r ON l.k = r.k AND l.ts BETWEEN r.ts - INTERVAL '10' SECOND AND r.ts + INTERVAL '5' SECOND");
        add("temporal", "SELECT l.id, r.v FROM ev l LEFT JOIN newest FOR SYSTEM_TIME AS OF l.ts AS r ON l.k = r.k");
        add("temporal", "SELECT " + all("l") + ", r.v FROM ev l JOIN ups FOR SYSTEM_TIME AS OF l.ts AS r ON l.k = r.k");
        String tumble = "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '60' SECOND)", windows = "window_start, window_end";
        String hop = "HOP(TABLE ev, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '60' SECOND)";
        String cumulate = "CUMULATE(TABLE ev, DESCRIPTOR(ts), INTERVAL '15' SECOND, INTERVAL '60' SECOND)";
        String session = "SESSION(TABLE ev PARTITION BY k, DESCRIPTOR(ts), INTERVAL '8' SECOND)";
        for (String[] each : new String[][] {{"tumble", tumble}, {"hop", hop}, {"cumulate", cumulate}, {"session", session}}) {
            String by = each[0].equals("session") ? "k" : one(true);
            add(each[0], "SELECT " + by + ", " + windows + ", COUNT(*), MAX(" + one(true) + "), LAST_VALUE(" + one(true) + "), COUNT(DISTINCT v) FILTER (WHERE b), LISTAGG(g) FROM TABLE("
                + each[1] + ") GROUP BY " + by + ", " + windows);
        }
        add("window-function", "SELECT " + windows + ", viewed(v, id, x) FROM TABLE(" + tumble + ") GROUP BY " + windows);
        add("window-top", "SELECT * FROM (SELECT " + columns + ", " + windows + ", ROW_NUMBER() OVER (PARTITION BY " + windows + ", k ORDER BY x DESC) AS n FROM TABLE(" + tumble + ")) WHERE n <= 2");
        add("window-last", "SELECT * FROM (SELECT " + columns + ", " + windows + ", ROW_NUMBER() OVER (PARTITION BY " + windows + ", g ORDER BY ts DESC) AS n FROM TABLE(" + tumble + ")) WHERE n <= 1");
        add("window-join", "SELECT " + all("l") + ", r.v FROM TABLE(" + tumble + ") l " + joins[random.nextInt(4)] + " TABLE(" + tumble + ") r ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end");
        add("old-window", "SELECT k, TUMBLE_START(ts, INTERVAL '60' SECOND), MAX(" + one(true) + "), COUNT(DISTINCT v) FROM ev GROUP BY k, TUMBLE(ts, INTERVAL '60' SECOND)");
        add("old-session", "SELECT b, SESSION_START(ts, INTERVAL '2' SECOND), MIN(" + one(true) + "), LISTAGG(v) FROM ev GROUP BY b, SESSION(ts, INTERVAL '2' SECOND)");
        add("old-hop-changed", "SELECT k, HOP_START(ts, INTERVAL '20' SECOND, INTERVAL '60' SECOND), MAX(x), COUNT(*) FROM ups GROUP BY k, HOP(ts, INTERVAL '20' SECOND, INTERVAL '60' SECOND)");
        String[] frames = {"ROWS BETWEEN 3 PRECEDING AND CURRENT ROW", "RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT ROW",
            "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"};
        for (String time : new String[] {"ts", "pt"})
            for (String frame : frames)
                add("over", "SELECT id, MAX(" + one(true) + ") OVER w, COUNT(DISTINCT v) OVER w, LAST_VALUE(" + one(true) + ") OVER w, SUM(x) OVER w FROM ev WINDOW w AS (PARTITION BY "
                    + one(true) + " ORDER BY " + time + " " + frame + ")");
        add("over-lag", "SELECT id, LAG(v, 2) OVER (PARTITION BY k ORDER BY ts), LAG(" + one(true) + ") OVER (PARTITION BY k ORDER BY ts) FROM ev");
        add("sort", "SELECT " + columns + " FROM ev ORDER BY ts, x");
        add("match", "SELECT * FROM ev MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS first_id, LAST(B.v) AS v AFTER MATCH SKIP PAST LAST ROW"
            + " PATTERN (A B{3} C) WITHIN INTERVAL '40' SECOND DEFINE B AS B.x > A.x, C AS C.x < 20)");
        add("match", "SELECT * FROM ev MATCH_RECOGNIZE (PARTITION BY b ORDER BY ts MEASURES A.id AS a, COUNT(B.id) AS n AFTER MATCH SKIP TO NEXT ROW"
            + " PATTERN (A B+? C? D) DEFINE A AS A.x > 30, B AS B.x > 10, C AS C.x < 50, D AS D.x > 60)");
        String lookup = " FOR SYSTEM_TIME AS OF l.pt AS r ON l.k = r.k";
        add("lookup-async", "SELECT /*+ LOOKUP('table' = 'r', 'output-mode' = 'ordered', 'timeout' = '1000 s') */ " + all("l") + ", r.name FROM ev l JOIN dims.`default`.async" + lookup);
        add("lookup", "SELECT l.id, r.name FROM (SELECT *, PROCTIME() AS pt FROM newest) l LEFT JOIN dims.`default`.quick" + lookup);
        add("lookup-async-keyed", "SELECT l.id, r.name FROM (SELECT *, PROCTIME() AS pt FROM newest) l JOIN dims.`default`.async" + lookup);
        add("materialize", "INSERT INTO by_g SELECT g, k, v, x FROM newer");
        add("materialize", "INSERT INTO by_g SELECT l.g, r.k, l.v, r.x FROM newest l LEFT JOIN newest r ON l.k = r.k");
        return queries;
    }
}
