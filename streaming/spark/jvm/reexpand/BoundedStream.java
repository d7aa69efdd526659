package reexpand;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.kafka010.KafkaConfigUpdater;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaSourceOffset;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The driver's part: Spark's Kafka source plans, requests take precedence, and a budget of bytes may end partitions
 * earlier.
 */
final class BoundedStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {

    private final MicroBatchStream kafka;
    private final long budget;
    private final int bound;
    private final int beginning;
    private final boolean cuts; // so that our own readers read
    private final Precedence precedence;

    BoundedStream(
        MicroBatchStream kafka, Precedence precedence, long budget, int bound, int beginning, boolean cuts) {
        this.kafka = kafka;
        this.precedence = precedence;
        this.budget = budget;
        this.bound = bound;
        this.beginning = beginning;
        this.cuts = cuts;
    }

    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return cuts ? partitions(start, end) : kafka.planInputPartitions(start, end);
    }

    public PartitionReaderFactory createReaderFactory() {
        return cuts ? new Readers() : kafka.createReaderFactory();
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
        Offset end = ((SupportsAdmissionControl) kafka).latestOffset(start, limit);
        if (end == null || end.equals(start)) {
            return end;
        }
        KafkaSourceOffset planned = (KafkaSourceOffset) end;
        if (limit instanceof ReadMaxRows) {
            KafkaSourceOffset latest = (KafkaSourceOffset) reportLatestOffset();
            planned = precedence.divide((KafkaSourceOffset) start, planned, latest, ((ReadMaxRows) limit).maxRows());
        }
        return affordable(start, planned);
    }

    private Offset affordable(Offset start, KafkaSourceOffset end) {
        scala.collection.immutable.Map offsets = end.partitionToOffsets();
        BoundedPartition[] partitions = partitions(start, end);
        try {
            new ByteBudget(budget, bound, beginning).cut(partitions);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        for (int number = 0; number < partitions.length; number++) {
            Long until = Long.valueOf(partitions[number].until);
            offsets = (scala.collection.immutable.Map) offsets.updated(partitions[number].place, until);
        }
        return new KafkaSourceOffset(offsets);
    }

    private BoundedPartition[] partitions(Offset start, Offset end) {
        InputPartition[] planned = kafka.planInputPartitions(start, end);
        BoundedPartition[] bounded = new BoundedPartition[planned.length];
        for (int number = 0; number < planned.length; number++) {
            KafkaBatchInputPartition each = (KafkaBatchInputPartition) planned[number];
            bounded[number] = new BoundedPartition(
                each.offsetRange().topicPartition(),
                each.offsetRange().fromOffset(),
                each.offsetRange().untilOffset(),
                consumerOptions(each.executorKafkaParams()),
                bound,
                beginning);
        }
        return bounded;
    }

    /** Adds Spark's delegation token for these brokers, if it has one, as Spark does for its own consumers. */
    private static HashMap consumerOptions(Map options) {
        scala.collection.immutable.Map given =
            scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options));
        return new HashMap(new KafkaConfigUpdater("source", given).setAuthenticationConfigIfNeeded().build());
    }

    public Offset initialOffset() {
        return kafka.initialOffset();
    }

    public Offset latestOffset() {
        return kafka.latestOffset();
    }

    public ReadLimit getDefaultReadLimit() {
        return ((SupportsAdmissionControl) kafka).getDefaultReadLimit();
    }

    public Offset reportLatestOffset() {
        return ((SupportsAdmissionControl) kafka).reportLatestOffset();
    }

    public void prepareForTriggerAvailableNow() {
        ((SupportsTriggerAvailableNow) kafka).prepareForTriggerAvailableNow();
    }

    public Map metrics(Optional latestConsumed) {
        return ((ReportsSourceMetrics) kafka).metrics(latestConsumed);
    }

    public Offset deserializeOffset(String json) {
        return kafka.deserializeOffset(json);
    }

    public void commit(Offset end) {
        kafka.commit(end);
    }

    public void stop() {
        kafka.stop();
    }

    public String toString() {
        return kafka.toString();
    }

    /** Makes the readers in the tasks. */
    private static final class Readers implements PartitionReaderFactory {

        private static final long serialVersionUID = 1L;

        public PartitionReader createReader(InputPartition partition) {
            return new BoundedReader((BoundedPartition) partition);
        }
    }
}
