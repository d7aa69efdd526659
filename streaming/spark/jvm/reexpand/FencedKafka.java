package reexpand;

import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A sink of Structured Streaming that writes a state partition's records of a micro-batch in one Kafka transaction.
 *
 * Rows have the columns topic, key and value, all of them text. Options with the prefix "kafka." are producer options.
 * The others are checkpoint (the id of the checkpoint), generation (the number of the driver, larger for each later
 * driver), run (the number of its query), and markers (a topic under whose name the broker keeps the markers; nothing
 * is written to it).
 *
 * The sources of this package are written for Janino, the compiler within Spark: no lambdas, and types without arguments.
 */
public final class FencedKafka implements TableProvider, SupportsWrite {

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return schema();
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return this;
    }

    public String name() {
        return "reexpand";
    }

    public StructType schema() {
        return new StructType().add("topic", "string").add("key", "string").add("value", "string");
    }

    public Set capabilities() {
        return EnumSet.of(TableCapability.STREAMING_WRITE);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return new FencedWrite(info.options().asCaseSensitiveMap());
    }
}
