package reexpand;

import java.io.IOException;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.utils.BufferSupplier;

/**
 * The bytes that the values of a micro-batch may have, divided among its partitions.
 *
 * Offsets contain no sizes. So the batches of a partition are read, unless it has few records.
 */
final class ByteBudget {

    private final int bound;
    private final int beginning;
    private final BufferSupplier buffers = BufferSupplier.create();
    private long left;

    ByteBudget(long bytes, int bound, int beginning) {
        this.left = bytes;
        this.bound = bound;
        this.beginning = beginning;
    }

    /** Replaces partitions by others that end earlier, after a record or more, if they exceed their shares. */
    void cut(BoundedPartition[] partitions) throws IOException {
        Arrays.sort(partitions, new Comparator() { // so that small partitions leave the rest of their shares to large ones

            public int compare(Object one, Object other) {
                return Long.compare(((BoundedPartition) one).size(), ((BoundedPartition) other).size());
            }
        });
        for (int number = 0; number < partitions.length; number++) {
            long share = left / (partitions.length - number);
            long most = partitions[number].size() * Math.max(bound, beginning);
            if (most <= share) {
                left -= most;
            } else {
                partitions[number] = partitions[number].until(end(partitions[number], left - share));
            }
        }
        buffers.close();
    }

    /** Returns the end of a partition, which leaves a part of the budget to other partitions. */
    private long end(BoundedPartition partition, long reserve) throws IOException {
        long position = partition.from;
        BatchFetcher fetcher = BatchFetcher.take(partition);
        try {
            while (position < partition.until) {
                Iterator batches = FetchResponse.recordsOrFail(fetcher.fetch(position)).batches().iterator();
                while (batches.hasNext() && position < partition.until) {
                    RecordBatch batch = (RecordBatch) batches.next();
                    long end = endWithin(batch, position, partition, reserve);
                    if (end < batch.nextOffset()) {
                        return end;
                    }
                    position = end;
                }
            }
        } catch (IllegalStateException gone) { // the task reports it
            return partition.until;
        } finally {
            fetcher.release();
        }
        return partition.until;
    }

    /** Returns the offset in or behind a batch at which the partition ends. */
    private long endWithin(RecordBatch batch, long position, BoundedPartition partition, long reserve)
        throws IOException {
        boolean isPlain = batch.compressionType() == CompressionType.NONE; // then the batch is larger than its values
        if (batch.isControlBatch() || isPlain && left - batch.sizeInBytes() >= reserve) {
            left -= batch.isControlBatch() ? 0 : batch.sizeInBytes();
            return batch.nextOffset();
        }
        BatchRecords records = new BatchRecords(batch, -1, 0, buffers);
        try {
            while (records.next() && records.offset < partition.until) {
                int size = records.offset < position ? 0 : records.size > bound ? beginning : records.size;
                if (left - size < reserve && records.offset > partition.from) {
                    return records.offset;
                }
                left -= size;
            }
        } finally {
            records.close();
        }
        return batch.nextOffset();
    }
}
