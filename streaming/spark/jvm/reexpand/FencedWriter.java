package reexpand;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * One task: the records of a state partition in a micro-batch.
 *
 * A repeated micro-batch has the same records, so it is skipped if its marker is written. Every driver leaves its
 * generation in the marker of each partition, in its first micro-batch at the latest: a writer of a former driver that
 * wakes up later finds it there. With delivery at least once there are no markers, and every record is written.
 */
final class FencedWriter implements DataWriter {

    private final Fence fence;
    private final long microBatch;
    private final ArrayList counts = new ArrayList();
    private FencedProducer producer;
    private boolean kept; // the producer comes from an earlier task and may have been fenced since
    private boolean skipping;
    private boolean open;
    private UTF8String lastTopic;
    private String lastTopicName;

    FencedWriter(Fence fence, long microBatch) {
        this.fence = fence;
        this.microBatch = microBatch;
        try {
            producer = FencedProducer.take(fence);
            kept = producer != null;
            if (!kept) {
                producer = FencedProducer.create(fence);
            }
            judge();
        } catch (Exception error) {
            discard();
            throw failed(error);
        }
    }

    public void write(Object record) throws IOException {
        try {
            InternalRow row = (InternalRow) record;
            if (row.isNullAt(0)) {
                counts.add(new String(row.getBinary(2), StandardCharsets.UTF_8));
                return;
            }
            if (skipping) {
                return;
            }
            String topic = topic(row.getUTF8String(0));
            Tables tables = new Tables(row.getBinary(1), row.getBinary(2));
            while (!skipping && tables.next()) {
                ProducerRecord found = new ProducerRecord(topic, tables.key(), tables.value());
                if (open) {
                    producer.send(found);
                } else {
                    begin(found);
                }
            }
        } catch (Exception error) {
            discard();
            throw failed(error);
        }
    }

    public WriterCommitMessage commit() throws IOException {
        try {
            if (!open && producer.generation < fence.generation) {
                begin(null); // it leaves the generation
            }
            if (open) {
                producer.commit(microBatch);
                open = false;
            }
            producer.release();
            producer = null;
            return new Done(counts);
        } catch (Exception error) {
            discard();
            throw failed(error);
        }
    }

    public void abort() throws IOException {
        if (producer == null) {
            return;
        }
        try {
            if (open) {
                producer.abort();
                open = false;
            }
            producer.release();
            producer = null;
        } catch (Exception error) {
            discard(); // the broker aborts the transaction when the next producer of the partition begins
        }
    }

    public void close() throws IOException {
        discard(); // a task that was neither committed nor aborted
    }

    /** Begins the transaction; a producer that was fenced since its last task is replaced, and checked again. */
    private void begin(ProducerRecord first) throws Exception {
        try {
            producer.begin(microBatch, first);
        } catch (Exception error) {
            if (!kept) {
                throw error;
            }
            discard();
            kept = false;
            producer = FencedProducer.create(fence);
            judge();
            if (skipping && (first != null || producer.generation == fence.generation)) {
                return;
            }
            producer.begin(microBatch, first);
        }
        open = true;
    }

    private void judge() {
        if (producer.generation > fence.generation) {
            throw new Refused("another driver has taken over this checkpoint");
        }
        if (producer.written > microBatch) {
            throw new Refused(
                producer.generation == fence.generation
                    ? "a later micro-batch has been written meanwhile"
                    : "the checkpoint is older than what was written: it goes on with micro-batch " + microBatch
                        + ", but micro-batch " + producer.written + " is written; put the later checkpoint back, or start "
                        + "with an empty checkpoint directory and an empty updates topic");
        }
        skipping = producer.written == microBatch;
    }

    private void discard() {
        if (producer != null) {
            producer.close();
            producer = null;
            open = false;
        }
    }

    private String topic(UTF8String name) {
        if (!name.equals(lastTopic)) {
            lastTopic = name.clone();
            lastTopicName = name.toString();
        }
        return lastTopicName;
    }

    private RuntimeException failed(Exception error) {
        if (error instanceof Refused) {
            return (Refused) error;
        }
        return new RuntimeException(
            "micro-batch " + microBatch + " of state partition " + fence.partition + " cannot be written to Kafka: "
                + error, error);
    }
}
