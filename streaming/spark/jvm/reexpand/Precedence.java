package reexpand;

import java.util.Arrays;
import java.util.Collection;
import java.util.Iterator;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.kafka010.KafkaSourceOffset;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Division of a micro-batch among partitions, if more records wait than it may have: some topics come first, up to half
 * of the records, or more if the other topics leave room. Spark divides it in proportion to what waits.
 *
 * A request that is read behind many topic events is compared with all of their topics, so requests come first.
 */
public final class Precedence {

    private final Collection first;

    /**
     * @param first names of topics, separated by commas
     */
    public Precedence(String first) {
        this.first = Arrays.asList(first.split(","));
    }

    /**
     * Returns where a micro-batch of `most` records ends. A partition in which records wait has one of them at least.
     *
     * @param planned its end as Spark plans it, for partitions that are new
     * @param latest ends of the partitions
     */
    public KafkaSourceOffset divide(
        KafkaSourceOffset start, KafkaSourceOffset planned, KafkaSourceOffset latest, long most) {
        Map begins = CollectionConverters.asJava(start.partitionToOffsets());
        Map ends = CollectionConverters.asJava(latest.partitionToOffsets());
        long firstWaiting = 0;
        long othersWaiting = 0;
        for (Iterator each = ends.keySet().iterator(); each.hasNext();) {
            TopicPartition partition = (TopicPartition) each.next();
            if (isFirst(partition)) {
                firstWaiting += waiting(partition, begins, ends);
            } else {
                othersWaiting += waiting(partition, begins, ends);
            }
        }
        if (firstWaiting == 0 || firstWaiting + othersWaiting <= most) {
            return planned;
        }
        long ofFirst = Math.min(firstWaiting, Math.max(most / 2, most - othersWaiting));
        scala.collection.immutable.Map offsets = planned.partitionToOffsets();
        for (Iterator each = ends.keySet().iterator(); each.hasNext();) {
            TopicPartition partition = (TopicPartition) each.next();
            long size = waiting(partition, begins, ends);
            if (size > 0) {
                double share = isFirst(partition)
                    ? (double) ofFirst / firstWaiting
                    : (double) (most - ofFirst) / othersWaiting;
                long records = Math.max(1, (long) (share * size));
                Long end = Long.valueOf(((Long) begins.get(partition)).longValue() + records);
                offsets = (scala.collection.immutable.Map) offsets.updated(partition, end);
            }
        }
        return new KafkaSourceOffset(offsets);
    }

    private boolean isFirst(TopicPartition partition) {
        return first.contains(partition.topic());
    }

    /** Returns how many records wait in a partition; 0 for a new one, whose beginning Spark looks up. */
    private static long waiting(TopicPartition partition, Map begins, Map ends) {
        Long begin = (Long) begins.get(partition);
        return begin == null ? 0 : Math.max(0, ((Long) ends.get(partition)).longValue() - begin.longValue());
    }
}
