package reexpand;

import java.io.IOException;
import java.sql.Timestamp;
import java.util.Iterator;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.unsafe.types.UTF8String;

/** The records of a partition, as rows with the columns of {@link BoundedKafka}. */
final class BoundedReader implements PartitionReader {

    private final BoundedPartition partition;
    private final UTF8String topic;
    private final BatchFetcher fetcher;
    private long position;
    private Iterator batches; // of the last answer; null before the first answer
    private AbortedTransactions aborted;
    private BatchRecords records; // of the current batch; null before the first batch

    BoundedReader(BoundedPartition partition) {
        this.partition = partition;
        this.topic = UTF8String.fromString(partition.place.topic());
        this.fetcher = BatchFetcher.take(partition);
        this.position = partition.from;
    }

    public boolean next() throws IOException {
        while (position < partition.until) {
            if (records != null && records.next()) {
                if (records.offset >= position) {
                    position = records.offset + 1;
                    return position <= partition.until;
                }
            } else if (batches != null && batches.hasNext()) {
                leave();
                enter((RecordBatch) batches.next());
            } else {
                leave();
                fetch();
            }
        }
        return false;
    }

    public Object get() {
        Object[] columns = {
            topic,
            Integer.valueOf(partition.place.partition()),
            Long.valueOf(records.offset),
            Long.valueOf(DateTimeUtils.fromJavaTimestamp(new Timestamp(records.timestamp))),
            records.value,
            Integer.valueOf(records.size)
        };
        return new GenericInternalRow(columns);
    }

    public void close() throws IOException {
        if (records != null) {
            records.close();
        }
        fetcher.release();
    }

    private void fetch() throws IOException {
        FetchResponseData.PartitionData answer = fetcher.fetch(position);
        aborted = new AbortedTransactions(answer);
        batches = FetchResponse.recordsOrFail(answer).batches().iterator();
    }

    private void enter(RecordBatch batch) throws IOException {
        batch.ensureValid();
        boolean isHidden = partition.readsCommitted() && aborted.contain(batch);
        if (isHidden || batch.isControlBatch()) {
            position = Math.max(position, batch.nextOffset());
        } else {
            records = new BatchRecords(batch, partition.bound, partition.beginning, BufferSupplier.NO_CACHING);
        }
    }

    /** Goes behind the current batch: compaction may have removed its last records. */
    private void leave() throws IOException {
        if (records != null) {
            position = Math.max(position, records.batch.nextOffset());
            records.close();
            records = null;
        }
    }
}
