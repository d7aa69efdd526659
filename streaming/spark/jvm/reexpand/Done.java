package reexpand;

import java.util.ArrayList;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** A task's message to the driver: the rows of counts. */
final class Done implements WriterCommitMessage {

    private static final long serialVersionUID = 2L;

    final ArrayList counts;

    Done(ArrayList counts) {
        this.counts = counts;
    }
}
