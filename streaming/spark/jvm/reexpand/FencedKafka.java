package reexpand;

import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.streaming.ReportsSinkMetrics;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The sink of the job: it writes the records that output rows hold (see `Tables`). Rows without a topic hold counts
 * as JSON: Spark's progress of a micro-batch has an array of them as the metric "counts" of the sink.
 *
 * Options with the prefix "kafka." are producer options. With the other options, a state partition's records of a
 * micro-batch are written in one Kafka transaction, without them at least once. They are checkpoint (the id of the
 * checkpoint), generation (the number of the driver, larger for each later driver), run (the number of its query), and
 * markers (a topic under whose name the broker keeps the markers; nothing is written to it).
 *
 * The sources of this package are written for Janino, the compiler within Spark: no lambdas, and types without arguments.
 */
public final class FencedKafka implements TableProvider, SupportsWrite, ReportsSinkMetrics {

    private volatile String counts = "[]";

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
        return new StructType()
            .add("topic", DataTypes.StringType)
            .add("key", DataTypes.BinaryType)
            .add("value", DataTypes.BinaryType);
    }

    public Set capabilities() {
        return EnumSet.of(TableCapability.STREAMING_WRITE);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return new FencedWrite(this, info.options().asCaseSensitiveMap());
    }

    public Map metrics() {
        return Collections.singletonMap("counts", counts);
    }

    /** Keeps the counts of a committed micro-batch. */
    void report(WriterCommitMessage[] messages) {
        ArrayList all = new ArrayList();
        for (int task = 0; task < messages.length; task++) {
            all.addAll(((Done) messages[task]).counts);
        }
        counts = "[" + String.join(",", all) + "]";
    }
}
