package reexpand;

/**
 * Budget of CPU time: a number of cores on average, of which half a second may be used in advance.
 *
 * An overdrawn budget makes the query wait until it is earned, but never longer than a given time.
 */
public final class CpuBudget {

    private static final double ADVANCE_SECONDS = 0.5;

    private final double cores;
    private final double longestSeconds;
    private double credit;

    public CpuBudget(double cores, long longestMillis) {
        this.cores = cores;
        this.longestSeconds = longestMillis / 1000.0;
        this.credit = cores * ADVANCE_SECONDS;
    }

    /** Returns for how many milliseconds to wait after so many seconds, in which so much CPU time was used. */
    public long spend(double seconds, double cpuSeconds) {
        double earned = Math.min(credit + seconds * cores, cores * ADVANCE_SECONDS + cpuSeconds);
        credit = Math.max(earned - cpuSeconds, -cores * longestSeconds);
        return credit < 0 ? Math.round(-credit / cores * 1000) : 0;
    }
}
