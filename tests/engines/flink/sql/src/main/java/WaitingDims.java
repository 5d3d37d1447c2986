import java.util.Collection;
import java.util.Collections;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.table.catalog.GenericInMemoryCatalog;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.lookup.AsyncLookupFunctionProvider;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.Factory;
import org.apache.flink.table.functions.AsyncLookupFunction;
import org.apache.flink.table.functions.LookupFunction;

/** A catalog whose tables answer look-ups: those with async in their name never answer for a key above 3, so its records wait. */
public final class WaitingDims extends GenericInMemoryCatalog {
    public WaitingDims() {
        super("dims");
    }

    @Override public Optional<Factory> getFactory() {
        return Optional.of(new Tables());
    }

    public static final class Tables implements DynamicTableSourceFactory {
        @Override public DynamicTableSource createDynamicTableSource(Context context) {
            return new Dim(context.getObjectIdentifier().getObjectName().contains("async"));
        }

        @Override public String factoryIdentifier() {
            return "dims";
        }

        @Override public Set<ConfigOption<?>> requiredOptions() {
            return Collections.emptySet();
        }

        @Override public Set<ConfigOption<?>> optionalOptions() {
            return Collections.emptySet();
        }
    }

    static final class Dim implements LookupTableSource {
        private final boolean async;

        Dim(boolean async) {
            this.async = async;
        }

        @Override public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            return async ? AsyncLookupFunctionProvider.of(new Waiting()) : LookupFunctionProvider.of(new Quick());
        }

        @Override public DynamicTableSource copy() {
            return new Dim(async);
        }

        @Override public String asSummaryString() {
            return "dims";
        }
    }

    private static Collection<RowData> answer(RowData key) {
        return Collections.singleton(GenericRowData.of(key.getInt(0), StringData.fromString("name-" + key.getInt(0))));
    }

    public static final class Quick extends LookupFunction {
        @Override public Collection<RowData> lookup(RowData key) {
            return answer(key);
        }
    }

    public static final class Waiting extends AsyncLookupFunction {
        @Override public CompletableFuture<Collection<RowData>> asyncLookup(RowData key) {
            return key.getInt(0) > 3 ? new CompletableFuture<>() : CompletableFuture.completedFuture(answer(key));
        }
    }
}
