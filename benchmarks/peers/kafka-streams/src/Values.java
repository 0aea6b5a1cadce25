/** The values of all topics and stores, as records that Jackson reads and writes. */
final class Values {
    private Values() {}

    // Input.

    record Reading(String d, long s, long t, double[] v) {}

    record Event(long n, double v) {}

    /** With the padding, which no result needs: joins and tables store whole records here as in the other systems. */
    record WholeEvent(long n, double v, String pad) {}

    record Version(long version, String pad) {}

    record Probe(long p) {}

    record Bid(long auction, long bidder, long price) {}

    record Group(String group) {}

    // Stores.

    record Sum(long count, double sum) {
        static final Sum NONE = new Sum(0, 0);

        Sum plus(double value) {
            return new Sum(count + 1, sum + value);
        }

        Sum plus(Sum other) {
            return new Sum(count + other.count, sum + other.sum);
        }

        Mean mean() {
            return new Mean(count, sum / count);
        }
    }

    record SumAndTime(long count, double sum, long t) {
        static final SumAndTime NONE = new SumAndTime(0, 0, Long.MIN_VALUE);

        SumAndTime plus(Reading reading) {
            return new SumAndTime(count + 1, sum + reading.v()[0], Math.max(t, reading.t()));
        }

        MeanAndTime mean() {
            return new MeanAndTime(count, sum / count, t);
        }
    }

    record Summary(long readings, double sum, double min, double max, double last) {
        static final Summary NONE = new Summary(0, 0, Double.MAX_VALUE, -Double.MAX_VALUE, 0);

        Summary plus(double value) {
            return new Summary(readings + 1, sum + value, Math.min(min, value), Math.max(max, value), value);
        }

        Statistics statistics(long windowStart) {
            return new Statistics(windowStart, readings, sum / readings, min, max, last);
        }
    }

    record Sequence(long readings, long first, long last) {
        static final Sequence NONE = new Sequence(0, Long.MAX_VALUE, Long.MIN_VALUE);

        Sequence plus(long number) {
            return new Sequence(readings + 1, Math.min(first, number), Math.max(last, number));
        }

        long missing() {
            return last - first + 1 - readings;
        }
    }

    record Missing(long missing, boolean changed) {}

    // Output.

    record Fahrenheit(long s, double f) {}

    record Mean(long count, double mean) {}

    record MeanAndTime(long count, double mean, long t) {}

    record Statistics(long window_start, long readings, double mean, double min, double max, double last) {}

    record Pair(long l, Long r) {}

    record Versioned(long n, Long version) {}

    record Answer(long p, long n) {}

    record Count(long count) {}

    record Price(long price) {}

    record GroupValue(String group, double value) {}
}
