package reexpand;

import java.time.Duration;
import java.util.Collections;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.spark.sql.kafka010.producer.CachedKafkaProducer;
import org.apache.spark.sql.kafka010.producer.InternalKafkaProducerPool$;

/**
 * A transactional producer of a state partition, and the marker of its written micro-batches.
 *
 * The marker is the committed offset of a consumer group of the partition's own: its offset is the number of written
 * micro-batches, and its metadata is the generation of the driver that wrote the latest of them. A transaction carries
 * it, so the records and the marker appear together or not at all.
 *
 * A producer serves one task at a time, and waits in between for the next micro-batch: a new producer costs more than
 * most micro-batches. For delivery at least once there is no marker, and the producer comes from Spark's pool, which also
 * renews delegation tokens.
 */
final class FencedProducer implements Callback {

    private static final ConcurrentHashMap WAITING = new ConcurrentHashMap();

    private final Fence fence;
    private final KafkaProducer producer;
    private final CachedKafkaProducer shared; // the producer for delivery at least once
    private volatile Exception failure;

    /** Number of the last micro-batch written, -1 for none. */
    long written = -1;
    /** Generation of the driver that wrote it. */
    long generation = -1;

    private FencedProducer(Fence fence) {
        this.fence = fence;
        this.shared = fence.isExact() ? null : InternalKafkaProducerPool$.MODULE$.acquire(fence.producerOptions());
        this.producer = shared == null ? new KafkaProducer(fence.producerOptions()) : shared.producer();
    }

    /**
     * Returns the producer that waits for this partition's next task; null if there is none.
     *
     * Producers of an earlier query are closed: their transactions were ended, which they would notice a minute later.
     */
    static FencedProducer take(Fence fence) {
        FencedProducer found = (FencedProducer) WAITING.remove(key(fence));
        if (found == null) {
            Iterator keys = WAITING.keySet().iterator();
            while (keys.hasNext()) {
                String former = (String) keys.next();
                if (former.startsWith(fence.name + "@")) {
                    FencedProducer unused = (FencedProducer) WAITING.remove(former);
                    if (unused != null) {
                        unused.close();
                    }
                }
            }
        }
        return found;
    }

    /** Returns a new producer. From now on the broker refuses all earlier producers of the partition. */
    static FencedProducer create(Fence fence) throws Exception {
        FencedProducer created = new FencedProducer(fence);
        try {
            if (fence.isExact()) {
                created.producer.initTransactions();
                created.readMarker();
            }
        } catch (Exception error) {
            created.close();
            throw error;
        }
        return created;
    }

    /**
     * Begins the transaction of a micro-batch with its first record, if it has any, and its marker.
     *
     * A fenced producer fails here. The record goes first, since the broker takes it while it notes the marker.
     */
    void begin(long microBatch, ProducerRecord first) throws Exception {
        failure = null;
        if (shared != null) {
            send(first);
            return;
        }
        producer.beginTransaction();
        if (first != null) {
            send(first);
        }
        OffsetAndMetadata marker = new OffsetAndMetadata(microBatch + 1, Long.toString(fence.generation));
        producer.sendOffsetsToTransaction(
            Collections.singletonMap(fence.markers, marker), new ConsumerGroupMetadata(fence.name));
    }

    void send(ProducerRecord record) throws Exception {
        if (failure != null) {
            throw failure;
        }
        producer.send(record, this);
    }

    void commit(long microBatch) throws Exception {
        try {
            if (shared == null) {
                producer.commitTransaction();
            } else {
                producer.flush();
            }
        } catch (Exception error) {
            throw failure == null ? error : failure; // the cause, if a record was refused
        }
        if (failure != null) {
            throw failure;
        }
        written = microBatch;
        generation = fence.generation;
    }

    void abort() {
        if (shared == null) {
            producer.abortTransaction();
        }
    }

    /** Keeps the producer for the next task. */
    void release() {
        if (shared != null) {
            close();
            return;
        }
        FencedProducer other = (FencedProducer) WAITING.put(key(fence), this);
        if (other != null) { // of an earlier attempt of the same task, whose transactions the broker refuses by now
            other.close();
        }
    }

    void close() {
        if (shared == null) {
            producer.close(Duration.ZERO);
        } else {
            InternalKafkaProducerPool$.MODULE$.release(shared);
        }
    }

    public void onCompletion(RecordMetadata metadata, Exception error) {
        if (error != null && failure == null) {
            failure = error;
        }
    }

    private void readMarker() throws Exception {
        AdminClient admin = AdminClient.create(fence.clientOptions());
        try {
            // Stable: a commit that is decided but not yet visible is waited for.
            ListConsumerGroupOffsetsOptions stable = new ListConsumerGroupOffsetsOptions().requireStable(true);
            Map offsets = (Map) admin.listConsumerGroupOffsets(fence.name, stable).partitionsToOffsetAndMetadata().get();
            OffsetAndMetadata marker = (OffsetAndMetadata) offsets.get(fence.markers);
            if (marker != null) {
                written = marker.offset() - 1;
                generation = Long.parseLong(marker.metadata());
            }
        } finally {
            admin.close(Duration.ZERO);
        }
    }

    private static String key(Fence fence) {
        return fence.name + "@" + fence.generation + "@" + fence.run;
    }
}
