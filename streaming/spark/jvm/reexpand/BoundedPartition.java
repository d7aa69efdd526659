package reexpand;

import java.util.HashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.InputPartition;

/** Offsets of a Kafka partition. */
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

    /** Returns the same partition with another end. */
    BoundedPartition until(long end) {
        return new BoundedPartition(place, from, end, options, bound, beginning);
    }

    long size() {
        return until - from;
    }

    boolean readsCommitted() {
        return "read_committed".equals(options.get("isolation.level"));
    }
}
