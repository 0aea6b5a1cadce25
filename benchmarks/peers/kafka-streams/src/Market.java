import com.fasterxml.jackson.annotation.JsonInclude;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** The values of Nexmark's queries in topics and stores, as records that Jackson reads and writes. */
final class Market {
    private Market() {}

    // Input.

    /** Of the last three, one is there: the one that the type names. */
    record Event(int event_type, Person person, Auction auction, Bid bid) {
        static final int PERSON = 0;
        static final int AUCTION = 1;
        static final int BID = 2;
    }

    record Person(
            long id,
            String name,
            String emailAddress,
            String creditCard,
            String city,
            String state,
            String extra,
            String dateTime) {}

    record Auction(
            long id,
            String itemName,
            String description,
            long initialBid,
            long reserve,
            String expires,
            long seller,
            long category,
            String extra,
            String dateTime) {}

    record Bid(long auction, long bidder, long price, String channel, String url, String extra, String dateTime) {
        static final double EUROS = 0.908;

        double euros() {
            return price * EUROS;
        }

        String day() {
            return dateTime.substring(0, 10);
        }

        String minute() {
            return dateTime.substring(11, 16);
        }
    }

    record Side(String value) {}

    // What is sent through repartition topics: what the queries need.

    record Seller(long id, String name, String city, String state) {}

    record Listing(long id, long category, long seller, String dateTime, String expires) {
        static Listing of(Auction one) {
            return new Listing(one.id, one.category, one.seller, one.dateTime, one.expires);
        }
    }

    record Item(
            String itemName,
            String description,
            long initialBid,
            long reserve,
            long seller,
            long category,
            String expires) {
        static Item of(Auction one) {
            return new Item(
                    one.itemName, one.description, one.initialBid, one.reserve, one.seller, one.category, one.expires);
        }
    }

    record Offer(long auction, long bidder, long price, String dateTime) {
        static Offer of(Bid one) {
            return new Offer(one.auction, one.bidder, one.price, one.dateTime);
        }
    }

    record Counted(long auction, long num) {}

    record Sale(long auction, long bidder, long price, String minute) {
        static Sale of(Bid one) {
            return new Sale(one.auction, one.bidder, one.price, one.minute());
        }

        /** The class of the price. */
        int rank() {
            return rankOf(price);
        }
    }

    static int rankOf(long price) {
        return price < 10_000 ? 1 : price < 1_000_000 ? 2 : 3;
    }

    // Keys.

    record ChannelDay(String channel, String day) {}

    record AuctionDay(long auction, String day) {}

    record BidderAuction(long bidder, long auction) {}

    // Stores.

    /** The highest bid of an auction, in its time. */
    record Won(long id, long category, long seller, long bidder, long price, String at) {
        static Won higher(Won best, Won one) {
            return one.price > best.price ? one : best;
        }
    }

    /** A bid beside its auction; texts of times are in the order of the times. */
    record Offered(Listing auction, Offer bid) {
        boolean timely() {
            String at = bid.dateTime;
            return at.compareTo(auction.dateTime) >= 0 && at.compareTo(auction.expires) <= 0;
        }

        Won won() {
            return new Won(auction.id, auction.category, auction.seller, bid.bidder, bid.price, bid.dateTime);
        }
    }

    record Total(long count, long sum) {
        static final Total NONE = new Total(0, 0);

        Total plus(long price) {
            return new Total(count + 1, sum + price);
        }

        Total minus(long price) {
            return new Total(count - 1, sum - price);
        }

        Mean mean() {
            return new Mean((double) sum / count);
        }
    }

    /** Counts only grow, so the largest of all updates is the largest count. */
    record Hottest(long num, List<Long> auctions) {
        static final Hottest NONE = new Hottest(0, List.of());

        Hottest plus(Counted one) {
            if (one.num < num || (one.num == num && auctions.contains(one.auction))) {
                return this;
            }
            List<Long> most = one.num == num ? new ArrayList<>(auctions) : new ArrayList<>();
            most.add(one.auction);
            return new Hottest(one.num, most);
        }
    }

    /** All auctions of a seller, the last one first: a higher bid may change which are the last ten. */
    record Wins(List<Won> all) {
        static final Wins NONE = new Wins(List.of());
        private static final int LAST = 10;
        private static final Comparator<Won> LAST_FIRST =
                Comparator.comparing(Won::at).thenComparing(Won::id).reversed();

        Wins plus(Won one) {
            List<Won> more = new ArrayList<>(all);
            more.add(one);
            more.sort(LAST_FIRST);
            return new Wins(more);
        }

        Wins minus(Won one) {
            return new Wins(all.stream().filter(other -> other.id != one.id).toList());
        }

        Mean mean() {
            return new Mean(all.stream().limit(LAST).mapToLong(Won::price).average().orElseThrow());
        }
    }

    /** The highest bids of an auction, the highest first. */
    record Top(List<Bid> bids) {
        static final Top NONE = new Top(List.of());
        private static final int MOST = 10;

        Top plus(Bid one) {
            int place = 0;
            while (place < bids.size() && bids.get(place).price >= one.price) {
                place++;
            }
            if (place == MOST) {
                return this;
            }
            List<Bid> more = new ArrayList<>(bids);
            more.add(place, one);
            return new Top(more.size() > MOST ? more.subList(0, MOST) : more);
        }

        RankedBid[] ranked() {
            RankedBid[] ranked = new RankedBid[bids.size()];
            for (int place = 0; place < ranked.length; place++) {
                ranked[place] = RankedBid.of(bids.get(place), place + 1);
            }
            return ranked;
        }
    }

    record Prices(long total, long rank1, long rank2, long rank3, long least, long most, long sum) {
        static final Prices NONE = new Prices(0, 0, 0, 0, Long.MAX_VALUE, Long.MIN_VALUE, 0);

        Prices plus(long price) {
            int rank = rankOf(price);
            return new Prices(
                    total + 1,
                    rank1 + (rank == 1 ? 1 : 0),
                    rank2 + (rank == 2 ? 1 : 0),
                    rank3 + (rank == 3 ? 1 : 0),
                    Math.min(least, price),
                    Math.max(most, price),
                    sum + price);
        }

        PricesAndMean withMean() {
            return new PricesAndMean(total, rank1, rank2, rank3, least, most, (double) sum / total, sum);
        }
    }

    /** A bid, and in which classes its bidder and its auction are new: a bit for each class, the first one for all. */
    record Marked(int rank, int newBidder, int newAuction, String minute) {}

    /** Bids, bidders and auctions: of all prices, and of each class. */
    record Tally(String minute, long[] bids, long[] bidders, long[] auctions) {
        static final Tally NONE = new Tally("", new long[4], new long[4], new long[4]);

        Tally plus(Marked one) {
            return new Tally(
                    one.minute.compareTo(minute) > 0 ? one.minute : minute,
                    more(bids, 1 | 1 << one.rank),
                    more(bidders, one.newBidder),
                    more(auctions, one.newAuction));
        }

        private static long[] more(long[] counts, int classes) {
            long[] found = counts.clone();
            for (int number = 0; number < found.length; number++) {
                found[number] += classes >> number & 1;
            }
            return found;
        }

        Statistics statistics(boolean withMinute) {
            return new Statistics(
                    withMinute ? minute : null,
                    bids[0], bids[1], bids[2], bids[3],
                    bidders[0], bidders[1], bidders[2], bidders[3],
                    auctions[0], auctions[1], auctions[2], auctions[3]);
        }
    }

    // Output.

    record InEuros(long auction, long bidder, double price, String dateTime, String extra) {
        static InEuros of(Bid one) {
            return new InEuros(one.auction, one.bidder, one.euros(), one.dateTime, one.extra);
        }
    }

    record AuctionPrice(long auction, long price) {}

    record Mean(double mean) {}

    record Best(Offer best) {}

    record Name(String name) {}

    record Bids(long bids) {}

    record Last(Bid last) {}

    record RankedBid(
            long auction,
            long bidder,
            long price,
            String channel,
            String url,
            String extra,
            String dateTime,
            int rank_number) {
        static RankedBid of(Bid one, int rank) {
            return new RankedBid(
                    one.auction, one.bidder, one.price, one.channel, one.url, one.extra, one.dateTime, rank);
        }
    }

    record Dated(
            long auction,
            long bidder,
            long price,
            String channel,
            String url,
            String extra,
            String dateTime,
            String dt,
            String hm) {}

    record WithSide(long auction, long bidder, long price, String dateTime, String value) {}

    record Timed(
            long auction,
            long bidder,
            String dateTime,
            String extra,
            double price,
            String bidTimeType,
            long c_counts) {}

    record WithItem(
            long auction,
            long bidder,
            long price,
            String channel,
            String url,
            String dateTime,
            String extra,
            String itemName,
            String description,
            long initialBid,
            long reserve,
            long seller,
            long category,
            String expires) {}

    record WithChannel(long auction, long bidder, long price, String channel, String channel_id) {}

    record WithFolders(
            long auction, long bidder, long price, String channel, String dir1, String dir2, String dir3) {}

    record PricesAndMean(
            long total, long rank1, long rank2, long rank3, long least, long most, double mean, long sum) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    record Statistics(
            String minute,
            long total_bids,
            long rank1_bids,
            long rank2_bids,
            long rank3_bids,
            long total_bidders,
            long rank1_bidders,
            long rank2_bidders,
            long rank3_bidders,
            long total_auctions,
            long rank1_auctions,
            long rank2_auctions,
            long rank3_auctions) {}
}
