package reexpand;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;

/** The driver's part: Spark's Kafka source plans, and the partitions that it plans are read by our own readers. */
final class BoundedStream implements MicroBatchStream, SupportsAdmissionControl, ReportsSourceMetrics {

    private final MicroBatchStream kafka;
    private final int bound;
    private final int beginning;

    BoundedStream(MicroBatchStream kafka, int bound, int beginning) {
        this.kafka = kafka;
        this.bound = bound;
        this.beginning = beginning;
    }

    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        InputPartition[] planned = kafka.planInputPartitions(start, end);
        InputPartition[] bounded = new InputPartition[planned.length];
        for (int number = 0; number < planned.length; number++) {
            KafkaBatchInputPartition each = (KafkaBatchInputPartition) planned[number];
            bounded[number] = new BoundedPartition(
                each.offsetRange().topicPartition(),
                each.offsetRange().fromOffset(),
                each.offsetRange().untilOffset(),
                new HashMap(each.executorKafkaParams()),
                bound,
                beginning);
        }
        return bounded;
    }

    public PartitionReaderFactory createReaderFactory() {
        return new Readers();
    }

    public Offset initialOffset() {
        return kafka.initialOffset();
    }

    public Offset latestOffset() {
        return kafka.latestOffset();
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
        return ((SupportsAdmissionControl) kafka).latestOffset(start, limit);
    }

    public ReadLimit getDefaultReadLimit() {
        return ((SupportsAdmissionControl) kafka).getDefaultReadLimit();
    }

    public Offset reportLatestOffset() {
        return ((SupportsAdmissionControl) kafka).reportLatestOffset();
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
