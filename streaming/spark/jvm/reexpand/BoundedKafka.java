package reexpand;

import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, except that its tasks read records of any size with little memory.
 *
 * Kafka's consumer allocates a whole record, and a compressed batch of 1 MB may hold 1 GB or more. This source
 * reads the beginning of a value while it decompresses the batch, and skips keys and headers.
 *
 * It takes the options of Spark's source, and the option "bound": the size in bytes above which a value is cut to the
 * option "beginning". The column "size" has the size of the whole value. It writes the same offsets to the checkpoint.
 */
public final class BoundedKafka implements TableProvider, SupportsRead, ScanBuilder, Scan {

    private CaseInsensitiveStringMap options;

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return schema();
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return this;
    }

    public String name() {
        return "reexpand-bounded-kafka";
    }

    public StructType schema() {
        return new StructType()
            .add("topic", "string")
            .add("partition", "int")
            .add("offset", "bigint")
            .add("timestamp", "timestamp")
            .add("value", "binary")
            .add("size", "int");
    }

    public Set capabilities() {
        return EnumSet.of(TableCapability.MICRO_BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        BoundedKafka scan = new BoundedKafka();
        scan.options = options;
        return scan;
    }

    public Scan build() {
        return this;
    }

    public StructType readSchema() {
        return schema();
    }

    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
        TableProvider provider = new KafkaSourceProvider();
        SupportsRead kafka = (SupportsRead) provider.getTable(null, new Transform[0], options.asCaseSensitiveMap());
        return new BoundedStream(
            kafka.newScanBuilder(options).build().toMicroBatchStream(checkpointLocation),
            options.getInt("bound", Integer.MAX_VALUE),
            options.getInt("beginning", Integer.MAX_VALUE));
    }
}
