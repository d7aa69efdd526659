package reexpand;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.time.Duration;
import java.util.Iterator;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.TERMINATED$;
import org.apache.spark.sql.execution.streaming.runtime.TriggerExecutor;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.apache.spark.util.Clock;

/**
 * Clock of a query's trigger, which waits between micro-batches: until the trigger is due, or while their CPU time is
 * beyond a budget. Between micro-batches it also ends the query and chooses its projections.
 *
 * Spark asks it to wait after each micro-batch, and each time that it finds no records. With a budget it waits after
 * micro-batches only, so that records that come into an idle job are read at once; and only after small ones, since a
 * large micro-batch indicates records that wait.
 */
public final class Pace implements Clock {

    private static final long START_MILLIS = 60000L;

    private final MicroBatchExecution query;
    private final CpuBudget budget; // null if the trigger decides
    private final Codegen codegen;
    private final CountDownLatch ending = new CountDownLatch(1);
    private final long enoughRecords;
    private final long begin;
    private long microBatch = -1;
    private long lastNanos;
    private double lastCpuSeconds;
    private final ProcessHandle self;

    private Pace(MicroBatchExecution query, CpuBudget budget, long enoughRecords, long graceMillis) throws Exception {
        this.query = query;
        this.budget = budget;
        this.codegen = new Codegen(query.sparkSessionForStream().sessionState().conf());
        this.enoughRecords = enoughRecords;
        this.begin = System.nanoTime() + graceMillis * 1000000L;
        // Janino refuses calls of static methods of interfaces.
        this.self = (ProcessHandle) ProcessHandle.class.getMethod("current", new Class[0]).invoke(null, new Object[0]);
    }

    /**
     * Paces a query whose trigger has an interval, however short.
     *
     * @param query a running query
     * @param cores cores that it may use; 0 if its trigger decides when it reads
     * @param longestMillis longest wait
     * @param enoughRecords records of a micro-batch after which nothing waits
     * @param graceMillis time from now on in which nothing waits: Java still compiles then
     */
    public static void keep(
        Object query, double cores, long longestMillis, long enoughRecords, long graceMillis) throws Exception {
        MicroBatchExecution execution = (MicroBatchExecution) query;
        TriggerExecutor trigger = execution.triggerExecutor();
        Thread thread = execution.queryExecutionThread();
        for (long waited = 0; trigger == null && thread.isAlive() && waited < START_MILLIS; waited += 10) {
            Thread.sleep(10);
            trigger = execution.triggerExecutor();
        }
        if (trigger == null) {
            return; // the query has failed before its first micro-batch, and reports it; or it begins too slowly
        }
        CpuBudget budget = cores > 0 ? new CpuBudget(cores, longestMillis) : null;
        clockOf(trigger).set(trigger, new Pace(execution, budget, enoughRecords, graceMillis));
    }

    /**
     * Ends a query as soon as its running micro-batch is committed, or at once if none runs.
     *
     * A query whose state is set to ended while it plans a micro-batch interrupts it. So the state is set
     * between micro-batches, by the query's own thread.
     *
     * @param query a query that is paced
     */
    public static void endAfterBatch(Object query) throws Exception {
        MicroBatchExecution execution = (MicroBatchExecution) query;
        TriggerExecutor trigger = execution.triggerExecutor();
        Object clock = trigger == null ? null : clockOf(trigger).get(trigger);
        if (clock instanceof Pace) {
            ((Pace) clock).ending.countDown();
        } else {
            execution.state().set(TERMINATED$.MODULE$); // its clock is Spark's: `keep` did not see it begin
        }
    }

    /** Spark takes another clock only when it makes the query, in methods that are not public. */
    private static Field clockOf(TriggerExecutor trigger) throws Exception {
        Field clock = trigger.getClass().getDeclaredField("clock");
        clock.setAccessible(true);
        return clock;
    }

    public long getTimeMillis() {
        return System.currentTimeMillis();
    }

    public long nanoTime() {
        return System.nanoTime();
    }

    /** Waits as trigger or budget require, or until the query is to end. */
    public long waitTillTime(long target) {
        StreamingQueryProgress latest = query.lastProgress();
        if (latest != null) {
            codegen.choose(latest.numInputRows());
        }
        if (budget == null) {
            sleep(target - getTimeMillis());
        } else if (latest != null && latest.batchId() != microBatch) {
            waitForBudget(latest);
        }
        if (ending.getCount() == 0) {
            query.state().set(TERMINATED$.MODULE$);
        }
        return getTimeMillis();
    }

    private void waitForBudget(StreamingQueryProgress latest) {
        microBatch = latest.batchId();
        long now = System.nanoTime();
        if (latest.numInputRows() >= enoughRecords) {
            lastNanos = 0; // CPU used under load is not owed afterwards
        } else if (now >= begin) {
            sleep(owed(now));
        }
    }

    private long owed(long now) {
        double cpuSeconds = cpuSeconds();
        boolean isFirst = lastNanos == 0;
        double seconds = (now - lastNanos) / 1e9;
        double used = Math.max(0, cpuSeconds - lastCpuSeconds); // a process that has ended takes its time with it
        lastNanos = now;
        lastCpuSeconds = cpuSeconds;
        return isFirst ? 0 : budget.spend(seconds, used);
    }

    /**
     * Returns the CPU time of this process, its child processes, Python's workers, and its parent process, the
     * driver.
     */
    private double cpuSeconds() {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        double seconds = system.getProcessCpuTime() / 1e9;
        ProcessHandle driver = (ProcessHandle) self.parent().orElse(null);
        if (driver != null) {
            seconds += cpuSeconds(driver);
        }
        Iterator processes = self.descendants().iterator();
        while (processes.hasNext()) {
            seconds += cpuSeconds((ProcessHandle) processes.next());
        }
        return seconds;
    }

    private static double cpuSeconds(ProcessHandle process) {
        Object time = process.info().totalCpuDuration().orElse(null);
        return time == null ? 0 : ((Duration) time).toMillis() / 1e3;
    }

    private void sleep(long millis) {
        if (millis > 0) {
            try {
                ending.await(millis, TimeUnit.MILLISECONDS);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt(); // Spark's loop ends at its next wait
            }
        }
    }
}
