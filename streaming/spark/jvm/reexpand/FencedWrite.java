package reexpand;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/** The driver's part: it hands the options to the tasks, and takes their counts. Each task commits for itself. */
final class FencedWrite
    implements SupportsStreamingUpdateAsAppend, Write, StreamingWrite, StreamingDataWriterFactory, Serializable {

    private static final long serialVersionUID = 1L;

    private final HashMap options;
    private final transient FencedKafka sink;

    FencedWrite(FencedKafka sink, Map options) {
        this.sink = sink;
        this.options = new HashMap(options);
    }

    public Write build() {
        return this;
    }

    public StreamingWrite toStreaming() {
        return this;
    }

    public String description() {
        return "reexpand";
    }

    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
        return this;
    }

    /** Markers on the broker decide which attempt of a task may write; the driver need not be asked. */
    public boolean useCommitCoordinator() {
        return false;
    }

    public DataWriter createWriter(int partition, long task, long microBatch) {
        return new FencedWriter(new Fence(options, partition), microBatch);
    }

    public void commit(long microBatch, WriterCommitMessage[] messages) {
        sink.report(messages);
    }

    public void abort(long microBatch, WriterCommitMessage[] messages) {
    }
}
