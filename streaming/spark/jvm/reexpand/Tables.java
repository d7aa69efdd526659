package reexpand;

import java.util.Arrays;

/**
 * The records of an output row, joined one by one from its tables (see `Tables` in `streaming.records.writing`).
 *
 * A micro-batch may have millions of records, so only their own bytes are copied.
 */
public final class Tables {

    private static final int PATTERNS = 9;
    private static final int RECORDS = 12;
    private static final int[] KEY = {4, 0, 5};
    private static final int[] VALUE = {6, 0, 10, 0, PATTERNS, 7, 1, 8, 2, 3, 11};
    private static final byte TABLE_END = 0x1e;
    private static final int FEW_LINES = 64; // first length of the array that grows

    private final byte[] start;
    private final byte[] data;
    private final int[][] lines = new int[RECORDS + 1][]; // by table: the begin of each line, and the end of the last
    private final int[] places = new int[RECORDS + 1]; // by table: the line of the present record
    private int next;

    /**
     * Reads the tables of a row.
     *
     * @param start common start of all keys
     * @param data the tables
     */
    public Tables(byte[] start, byte[] data) {
        this.start = start;
        this.data = data;
        int[] found = new int[FEW_LINES];
        int at = 0;
        for (int table = 0; table <= RECORDS; table++) {
            found[0] = at;
            int count = 1;
            for (; at < data.length && data[at] != TABLE_END; at++) {
                if (data[at] == '\n') {
                    if (count + 1 == found.length) {
                        found = Arrays.copyOf(found, 2 * found.length);
                    }
                    found[count++] = at + 1;
                }
            }
            found[count] = ++at;
            lines[table] = Arrays.copyOf(found, count + 1);
        }
    }

    /** Goes to the next record; returns false if there is none. */
    public boolean next() {
        if (next == lines[RECORDS].length - 1) {
            return false;
        }
        long number = 0;
        for (int at = lines[RECORDS][next]; at < lines[RECORDS][next + 1] - 1; at++) {
            number = number * 10 + data[at] - '0';
        }
        next++;
        int patterns = lines[PATTERNS].length;
        int subscribers = lines[KEY[0]].length - 1;
        long pair = number / patterns;
        places[PATTERNS] = (int) (number % patterns) - 1;
        for (int table = 0; table < PATTERNS; table++) {
            places[table] = (int) (table < KEY[0] ? pair / subscribers : pair % subscribers);
        }
        return true;
    }

    /** Returns the key of the present record. */
    public byte[] key() {
        return joined(KEY, start);
    }

    /** Returns the value of the present record; null for a tombstone. */
    public byte[] value() {
        return places[PATTERNS] < 0 ? null : joined(VALUE, new byte[0]);
    }

    private byte[] joined(int[] tables, byte[] first) {
        int size = first.length;
        for (int part = 0; part < tables.length; part++) {
            size += end(tables[part]) - begin(tables[part]);
        }
        byte[] joined = new byte[size];
        System.arraycopy(first, 0, joined, 0, first.length);
        int at = first.length;
        for (int part = 0; part < tables.length; part++) {
            int begin = begin(tables[part]);
            int length = end(tables[part]) - begin;
            System.arraycopy(data, begin, joined, at, length);
            at += length;
        }
        return joined;
    }

    private int begin(int table) {
        return lines[table][places[table]];
    }

    private int end(int table) {
        return lines[table][places[table] + 1] - 1;
    }
}
