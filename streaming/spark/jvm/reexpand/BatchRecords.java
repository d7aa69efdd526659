package reexpand;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteUtils;

/** The records of a batch, read one after the other without their keys and headers, long values in part. */
final class BatchRecords {

    final DefaultRecordBatch batch;
    /** Fields of the current record; `value` is its beginning if it is longer than the bound, and null for none. */
    long offset;
    long timestamp;
    byte[] value;
    int size;
    private final int bound;
    private final int beginning;
    private final InputStream input;
    private int left;

    BatchRecords(RecordBatch batch, int bound, int beginning, BufferSupplier buffers) throws IOException {
        if (!(batch instanceof DefaultRecordBatch)) {
            throw new IOException("a batch of Kafka has a format of releases before 0.11, which the next start reads");
        }
        this.batch = (DefaultRecordBatch) batch;
        this.bound = bound;
        this.beginning = beginning;
        this.input = this.batch.recordInputStream(buffers);
        this.left = batch.countOrNull().intValue();
    }

    boolean next() throws IOException {
        if (left == 0) {
            return false;
        }
        left--;
        ByteUtils.readVarint(input); // the size of the record
        skip(1); // its attributes, which are not used
        long after = ByteUtils.readVarlong(input);
        boolean isAppendTime = batch.timestampType() == TimestampType.LOG_APPEND_TIME;
        timestamp = isAppendTime ? batch.maxTimestamp() : batch.baseTimestamp() + after;
        offset = batch.baseOffset() + ByteUtils.readVarint(input);
        skip(ByteUtils.readVarint(input)); // the key
        readValue(ByteUtils.readVarint(input));
        for (int headers = ByteUtils.readVarint(input); headers > 0; headers--) {
            skip(ByteUtils.readVarint(input));
            skip(ByteUtils.readVarint(input));
        }
        return true;
    }

    void close() throws IOException {
        input.close();
    }

    private void readValue(int length) throws IOException {
        size = Math.max(length, 0); // -1 for none
        value = length < 0 ? null : new byte[length > bound ? beginning : length];
        int done = 0;
        while (value != null && done < value.length) {
            int read = input.read(value, done, value.length - done);
            if (read < 0) {
                throw new EOFException("a batch of Kafka ends within a record");
            }
            done += read;
        }
        skip(size - done);
    }

    private void skip(int bytes) throws IOException {
        long left = bytes;
        while (left > 0) {
            long skipped = input.skip(left);
            if (skipped <= 0) {
                if (input.read() < 0) {
                    throw new EOFException("a batch of Kafka ends within a record");
                }
                skipped = 1;
            }
            left -= skipped;
        }
    }
}
