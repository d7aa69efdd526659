package reexpand;

import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, with micro-batches that are bounded in bytes, and tasks that may read with little memory.
 *
 * It takes the options of Spark's source, and writes the same offsets to the checkpoint. Its own options:
 *
 * "first": topics that take precedence if more records wait than a micro-batch may have, separated by commas.
 * "budget": the size in bytes of all values of a micro-batch, in which at least one record of a partition is read.
 * "cuts": true if values are cut. Kafka's consumer allocates a whole record, and a compressed batch of 1 MB may hold
 * 1 GB or more. Then a task reads the beginning of a value while it decompresses the batch, and skips keys and headers.
 * The column "size" has the size of the whole value.
 * "bound": the size in bytes above which a value is cut to the option "beginning".
 */
public final class BoundedKafka implements TableProvider, SupportsRead, ScanBuilder, Scan {

    private final CaseInsensitiveStringMap options;

    public BoundedKafka() {
        this(CaseInsensitiveStringMap.empty());
    }

    private BoundedKafka(CaseInsensitiveStringMap options) {
        this.options = options;
    }

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return new BoundedKafka(options).schema();
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return new BoundedKafka(new CaseInsensitiveStringMap(properties));
    }

    public String name() {
        return "reexpand-bounded-kafka";
    }

    public StructType schema() {
        if (!cuts()) {
            return kafka().readSchema();
        }
        return new StructType()
            .add("topic", DataTypes.StringType)
            .add("partition", DataTypes.IntegerType)
            .add("offset", DataTypes.LongType)
            .add("timestamp", DataTypes.TimestampType)
            .add("value", DataTypes.BinaryType)
            .add("size", DataTypes.IntegerType);
    }

    public Set capabilities() {
        return EnumSet.of(TableCapability.MICRO_BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new BoundedKafka(options);
    }

    public Scan build() {
        return this;
    }

    public StructType readSchema() {
        return schema();
    }

    public CustomMetric[] supportedCustomMetrics() {
        return kafka().supportedCustomMetrics();
    }

    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
        return new BoundedStream(
            kafka().toMicroBatchStream(checkpointLocation),
            new Precedence((String) options.getOrDefault("first", "")),
            options.getLong("budget", Long.MAX_VALUE),
            options.getInt("bound", Integer.MAX_VALUE),
            options.getInt("beginning", Integer.MAX_VALUE),
            cuts());
    }

    private boolean cuts() {
        return options.getBoolean("cuts", false);
    }

    private Scan kafka() {
        TableProvider provider = new KafkaSourceProvider();
        SupportsRead kafka = (SupportsRead) provider.getTable(null, new Transform[0], options.asCaseSensitiveMap());
        return kafka.newScanBuilder(options).build();
    }
}
