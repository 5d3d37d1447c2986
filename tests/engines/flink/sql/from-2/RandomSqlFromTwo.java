import java.util.List;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** What SQL has from Flink 2.1 on, over random columns. */
public final class RandomSqlFromTwo extends RandomSql {
    @Override void register(StreamTableEnvironment tables) {
        tables.createTemporarySystemFunction("remember", SqlFromTwo.Remember.class);
        tables.executeSql("CREATE TEMPORARY TABLE by_ts (g STRING NOT NULL, k INT, v STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (g) NOT ENFORCED) WITH ('connector' = 'blackhole')");
    }

    @Override List<String[]> queries() {
        super.queries();
        queries.replaceAll(each -> each[1].startsWith("INSERT") ? new String[] {each[0], each[1] + " ON CONFLICT DO DEDUPLICATE"} : each);
        add("compact", "INSERT INTO by_g SELECT g, k, v, x FROM newest ON CONFLICT DO ERROR");
        add("compact", "INSERT INTO by_g SELECT g, k, v, x FROM newer ON CONFLICT DO NOTHING");
        add("functions-2", "SELECT * FROM remember(rows_in => TABLE ev PARTITION BY k, uid => 'remember')");
        add("multi-join", "SELECT x.id, y.v, z.g, w.x FROM newer x LEFT JOIN newest y ON x.k = y.k JOIN newer z ON x.k = z.k LEFT JOIN ups w ON x.k = w.k AND w.b");
        add("over-any", "SELECT id, SUM(x) OVER (PARTITION BY k ORDER BY id), MAX(v) OVER (PARTITION BY k ORDER BY id) FROM newer");
        add("over-any", "SELECT id, SUM(x) OVER (PARTITION BY b ORDER BY x ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) FROM newest");
        add("variant", "SELECT * FROM (SELECT id, k, TRY_PARSE_JSON('{\"a\": ' || CAST(id AS STRING) || '}') AS var, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id DESC) AS n FROM ev) WHERE n <= 2");
        return queries;
    }
}
