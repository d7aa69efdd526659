package reexpand;

import java.util.HashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.InputPartition;

/** Offsets of a Kafka partition for one task. */
final class BoundedPartition implements InputPartition {

    private static final long serialVersionUID = 1L;

    final TopicPartition place;
    final long from;
    final long until;
    final HashMap options; // of the consumer
    final int bound;
    final int beginning;

    BoundedPartition(TopicPartition place, long from, long until, HashMap options, int bound, int beginning) {
        this.place = place;
        this.from = from;
        this.until = until;
        this.options = options;
        this.bound = bound;
        this.beginning = beginning;
    }

    boolean readsCommitted() {
        return "read_committed".equals(options.get("isolation.level"));
    }
}
