import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.CompressionType;
import org.rocksdb.Options;

/** Memtables of a given size, so that a running application writes table files, and compression of those. */
public final class SmallTables implements RocksDBConfigSetter {
    static final String MEMTABLE = "small.tables.memtable.bytes";
    static final String COMPRESSION = "small.tables.compression";

    @Override
    public void setConfig(String store, Options options, Map<String, Object> configs) {
        if (configs.get(MEMTABLE) != null) {
            options.setWriteBufferSize(Long.parseLong(configs.get(MEMTABLE).toString()));
        }
        if (configs.get(COMPRESSION) != null) {
            options.setCompressionType(CompressionType.valueOf(configs.get(COMPRESSION).toString()));
        }
    }

    @Override
    public void close(String store, Options options) {}
}
