package reexpand;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;

/** The aborted transactions that a broker names in an answer. Batches must be checked in their order. */
final class AbortedTransactions {

    private final List ahead = new ArrayList();
    private final HashSet producers = new HashSet(); // with a transaction at the current batch that is aborted later

    AbortedTransactions(FetchResponseData.PartitionData answer) {
        if (answer.abortedTransactions() != null) {
            ahead.addAll(answer.abortedTransactions());
        }
    }

    /** Returns whether a batch is part of an aborted transaction. */
    boolean contain(RecordBatch batch) {
        Iterator named = ahead.iterator();
        while (named.hasNext()) {
            FetchResponseData.AbortedTransaction each = (FetchResponseData.AbortedTransaction) named.next();
            if (each.firstOffset() <= batch.lastOffset()) {
                producers.add(Long.valueOf(each.producerId()));
                named.remove();
            }
        }
        Long producer = Long.valueOf(batch.producerId());
        if (isAbort(batch)) {
            producers.remove(producer);
        }
        return batch.isTransactional() && producers.contains(producer);
    }

    private static boolean isAbort(RecordBatch batch) {
        if (!batch.isControlBatch()) {
            return false;
        }
        Iterator records = batch.iterator();
        return records.hasNext() && ControlRecordType.parse(((Record) records.next()).key()) == ControlRecordType.ABORT;
    }
}
