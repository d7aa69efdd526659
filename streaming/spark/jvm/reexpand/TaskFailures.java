package reexpand;

import org.apache.spark.SparkContext;
import org.apache.spark.TaskFailedReason;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;

/**
 * Listener that keeps the text of the last failed task with a given mark.
 *
 * Spark reports to the driver why a task failed only when it gives the query up, after several attempts.
 */
public final class TaskFailures extends SparkListener {

    private static SparkContext context;
    private static volatile String found;

    private final String mark;

    private TaskFailures(String mark) {
        this.mark = mark;
    }

    /** Begins to listen, unless this context has a listener already. */
    public static synchronized void listen(SparkContext listened, String mark) {
        found = null;
        if (context != listened) {
            context = listened;
            listened.addSparkListener(new TaskFailures(mark));
        }
    }

    /** Returns the text of the last failure with the mark, once; null if there is none. */
    public static String take() {
        String text = found;
        found = null;
        return text;
    }

    public void onTaskEnd(SparkListenerTaskEnd end) {
        if (end.reason() instanceof TaskFailedReason) {
            String text = ((TaskFailedReason) end.reason()).toErrorString();
            if (text.contains(mark)) {
                found = text;
            }
        }
    }
}
