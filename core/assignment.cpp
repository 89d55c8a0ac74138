#include "assignment.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace spadeful {

namespace {
// Measured over 2-D and 128-D clouds, clusters, uniform and integer costs, n = 64 .. 2000.
//
// Row scans per row that paths alone may take before the auction is called, if few rows are left or most had
// ties, which make paths short and auctions long.
constexpr std::size_t few_free = 50, patience = 30;
// Row reduction pays up to this size, for so many bids per row.
constexpr std::size_t small_size = 400, reduction_bids = 2;
// Epsilon starts from a share of what rows pay beyond the least, and grows after so many bids per row; past the
// cap, paths do the rest.
constexpr double first_epsilon = 0.3, epsilon_up = 10, epsilon_down = 8;
constexpr std::size_t bids_per_row = 6, bid_cap = 400;
}  // namespace

BestTwo Assignment::best_two(std::size_t i) const {
    BestTwo best = kernels_->best_two(row(i), price_.data(), n_);
    if (spare_ == 0 || i >= n_) return best;
    const BestTwo other = kernels_->best_two(zeros_.data(), price_.data() + n_, spare_);
    if (other.first < best.first)
        return {other.first, std::min(best.first, other.second), other.index + static_cast<std::ptrdiff_t>(n_)};
    best.second = std::min(best.second, other.first);
    return best;
}

void Assignment::match(std::size_t i, std::size_t j) {
    mate_of_row_[i] = static_cast<std::int32_t>(j);
    mate_of_column_[j] = static_cast<std::int32_t>(i);
}

// A free column as cheap as the best one, or columns().
std::size_t Assignment::find_free_tie(std::size_t i, const BestTwo& best) const {
    const double* c = row(i);
    for (std::size_t j = static_cast<std::size_t>(best.index); j < n_; ++j) {
        j = kernels_->find_sum(c, price_.data(), best.first, j, n_);
        if (j < n_ && mate_of_column_[j] < 0) return j;
    }
    if (i < n_)
        for (std::size_t j = n_; j < columns(); ++j)
            if (mate_of_column_[j] < 0 && price_[j] == best.first) return j;
    return columns();
}

// A row takes its best column if that is free. Returns what it costs.
double Assignment::take_best(std::size_t i) {
    const BestTwo best = best_two(i);
    auto j = static_cast<std::size_t>(best.index);
    ties_ += best.first == best.second;
    if (mate_of_column_[j] >= 0 && best.first == best.second) j = find_free_tie(i, best);
    if (j < columns() && mate_of_column_[j] < 0)
        match(i, j);
    else
        free_rows_.push_back(static_cast<std::int32_t>(i));
    return best.first;
}

// Whether rows have many best columns each, judged by a few rows.
bool Assignment::tied() const {
    constexpr std::size_t sample = 8, many = 6;
    std::size_t ties = 0;
    for (std::size_t k = 0; k < sample; ++k) {
        const double* c = row(k * n_ / sample);
        const double best = kernels_->minimum(c, n_);
        for (std::size_t j = 0; (j = kernels_->find(c, best, j, n_)) < n_; ++j) ++ties;
    }
    return ties >= many * sample;
}

// Column reduction, then every row in turn takes its best column if that is free. Where rows have ties, raw costs
// do as well as reduced ones, and one pass through memory is enough. Where some columns may stay unmatched, they
// must not bring the prices of far ones into everybody's sums, whose last digits would drown in them.
bool Assignment::greedy(double& mean) {
    const bool raw = spare_ > 0 || tied();
    bool finite = true;
    std::fill_n(lows_.data(), n_, infinity);
    for (std::size_t i = 0; i < n_; ++i) {
        finite &= kernels_->fold_minimum(row(i), lows_.data(), n_);
        if (raw && spare_ == 0 && finite) take_best(i);
    }
    mean = 0;
    if (!finite) return false;
    if (spare_ > 0) {
        mean = price_spares();
    } else if (raw) {
        return true;
    } else {
        for (std::size_t j = 0; j < n_; ++j) price_[j] = -lows_[j];
    }
    for (std::size_t i = 0; i < columns(); ++i) {
        const double best = take_best(i);
        if (spare_ == 0) mean += best / static_cast<double>(n_);
    }
    return true;
}

// Spare columns begin at a price that all but as many rows would rather not pay. Returns the mean of what those
// rows' best columns cost them beyond the least.
double Assignment::price_spares() {
    const std::size_t kept = n_ - spare_;
    for (std::size_t i = 0; i < n_; ++i) lows_[i] = kernels_->minimum(row(i), n_);
    std::nth_element(lows_.begin(), lows_.begin() + static_cast<std::ptrdiff_t>(kept), lows_.end());
    std::fill_n(price_.data() + n_, spare_, lows_[kept]);
    const double least = kernels_->minimum(lows_.data(), n_);
    double mean = 0;
    for (std::size_t i = 0; i < kept; ++i) mean += (lows_[i] - least) / static_cast<double>(kept);
    return mean;
}

// Augmenting row reduction: free rows take their best column from whoever has it and raise its price to where
// they would not mind the second best, so that every pair stays best for its row.
void Assignment::reduce_rows() {
    stack_.assign(free_rows_.rbegin(), free_rows_.rend());
    free_rows_.clear();
    for (std::size_t bids = 0; !stack_.empty(); ++bids) {
        const auto i = static_cast<std::size_t>(stack_.back());
        stack_.pop_back();
        if (bids >= reduction_bids * columns()) {
            free_rows_.push_back(static_cast<std::int32_t>(i));
            continue;
        }
        const BestTwo best = best_two(i);
        auto j = static_cast<std::size_t>(best.index);
        if (best.first == best.second && mate_of_column_[j] >= 0) {
            j = find_free_tie(i, best);
            if (j == columns()) {
                free_rows_.push_back(static_cast<std::int32_t>(i));
                continue;
            }
        } else if (best.second < infinity) {
            price_[j] += best.second - best.first;
        }
        if (const std::int32_t old = mate_of_column_[j]; old >= 0) {
            mate_of_row_[old] = -1;
            stack_.push_back(old);
        }
        match(i, j);
    }
}

// Rows bid for their best column as much as it is better than the second, plus epsilon. Where bids do not
// settle, epsilon grows; from there it falls back in steps to where it began.
void Assignment::auction(double epsilon, Watch& watch) {
    const std::size_t n = columns();
    const double last = epsilon;
    std::size_t bids = 0;
    for (bool settled = false;; settled = true) {
        stack_.clear();
        for (std::size_t i = n; i-- > 0;) {
            const std::int32_t j = mate_of_row_[i];
            if (j >= 0) {
                if (!settled || cost(i, j) + price_[j] <= best_two(i).first + epsilon) continue;
                mate_of_row_[i] = mate_of_column_[j] = -1;
            }
            stack_.push_back(static_cast<std::int32_t>(i));
        }
        for (std::size_t limit = bids_per_row * n; !stack_.empty(); ++bids) {
            watch.tick();
            if (bids > bid_cap * n) return;
            if (!settled && bids > limit) {
                epsilon *= epsilon_up;
                limit = bids + bids_per_row * n;
            }
            const auto i = static_cast<std::size_t>(stack_.back());
            stack_.pop_back();
            const BestTwo best = best_two(i);
            const auto j = static_cast<std::size_t>(best.index);
            const double second = std::isfinite(best.second) ? best.second : best.first;  // one column only
            price_[j] += (second - best.first) + epsilon;
            if (const std::int32_t old = mate_of_column_[j]; old >= 0) {
                mate_of_row_[old] = -1;
                stack_.push_back(old);
            }
            match(i, j);
        }
        if (epsilon <= last) return;
        epsilon = std::max(epsilon / epsilon_down, last);
    }
}

// Bids leave spare points, which are all alike, at slightly different prices. At their common one, just as many
// rows prefer a spare column, and just as many columns are the cheapest, as there are spare points.
void Assignment::level_spares() {
    const auto last = static_cast<std::ptrdiff_t>(spare_) - 1;
    std::copy_n(price_.begin(), n_, lows_.begin());
    std::nth_element(lows_.begin(), lows_.begin() + last, lows_.end());
    const double floor = lows_[last];
    for (std::size_t j = 0; j < n_; ++j) price_[j] = std::max(price_[j], floor);
    for (std::size_t i = 0; i < n_; ++i) lows_[i] = kernels_->best_two(row(i), price_.data(), n_).first;
    std::nth_element(lows_.begin(), lows_.begin() + last, lows_.end(), std::greater<>());
    std::fill_n(price_.begin() + static_cast<std::ptrdiff_t>(n_), spare_, lows_[last]);
}

// Keeps the pairs that are exactly best for their row; the other rows take a free best column or stay free.
void Assignment::keep_tight() {
    if (spare_ > 0) level_spares();
    stack_.clear();
    for (std::size_t i = 0; i < columns(); ++i) {
        const std::int32_t j = mate_of_row_[i];
        if (j >= 0 && cost(i, j) + price_[j] == best_two(i).first) continue;
        if (j >= 0) mate_of_row_[i] = mate_of_column_[j] = -1;
        stack_.push_back(static_cast<std::int32_t>(i));
    }
    free_rows_.clear();
    for (const std::int32_t i : stack_) take_best(static_cast<std::size_t>(i));
}

// Moves all columns at this distance from the open to the reached ones, until it meets a free one and returns it.
std::int32_t Assignment::advance(double distance) {
    const auto look = [&](std::size_t start, std::size_t size, const double* lows) {
        for (std::size_t b = 0; (b = kernels_->find(lows, distance, b, blocks(size))) < blocks(size); ++b) {
            const std::size_t end = start + std::min(size, (b + 1) * block_size);
            std::size_t j = start + b * block_size;
            for (; (j = kernels_->find(distance_.data(), distance, j, end)) < end; ++j) {
                if (mate_of_column_[j] < 0) return static_cast<std::int32_t>(j);
                reached_.push_back({static_cast<std::int32_t>(j), distance});
                distance_[j] = open_price_[j] = infinity;
            }
        }
        return std::int32_t{-1};
    };
    const std::int32_t end = look(0, n_, nearest_.data());
    return end >= 0 || spare_ == 0 ? end : look(n_, spare_, nearest_.data() + blocks(n_));
}

// Dijkstra from one free row to the nearest free column. False if the scans ran out; nothing has changed then.
bool Assignment::augment(std::size_t free_row, std::size_t& scans, Watch& watch) {
    const std::size_t n = columns();
    std::fill_n(distance_.begin(), n, infinity);
    std::copy_n(price_.begin(), n, open_price_.begin());  // infinite once a column is reached
    std::fill(nearest_.begin(), nearest_.end(), infinity);
    scanned_.clear();
    reached_.clear();
    std::size_t next = 0;  // of the columns reached, the first whose row is still to be scanned
    Scan scan{static_cast<std::int32_t>(free_row), 0.0, 0.0};
    for (;;) {
        watch.tick();
        if (scans == 0) return false;
        --scans;
        scanned_.push_back(scan);
        const auto i = static_cast<std::size_t>(scan.row);
        kernels_->relax(row(i), open_price_.data(), scan.shift, distance_.data(), nearest_.data(), n_);
        if (spare_ > 0 && i < n_)
            kernels_->relax(zeros_.data(), open_price_.data() + n_, scan.shift, distance_.data() + n_,
                            nearest_.data() + blocks(n_), spare_);
        const double nearest = kernels_->minimum(nearest_.data(), blocks(n_) + blocks(spare_));
        if (next == reached_.size() || nearest <= scan.distance) {
            if (const std::int32_t end = advance(nearest); end >= 0) {
                flip_path(free_row, static_cast<std::size_t>(end), nearest);
                for (const Reach& r : reached_) price_[r.column] += nearest - r.distance;
                return true;
            }
        }
        const Reach& from = reached_[next++];
        scan.row = mate_of_column_[from.column];
        scan.distance = from.distance;
        scan.shift = from.distance - (cost(scan.row, from.column) + price_[from.column]);
    }
}

// Walks back from a free column. The row that a column was reached from is not stored while searching: it is
// the first whose sum, formed in the same order, equals the distance.
void Assignment::flip_path(std::size_t free_row, std::size_t column, double distance) {
    for (;;) {
        const Scan* scan = scanned_.data();
        for (;; ++scan) {
            const auto i = static_cast<std::size_t>(scan->row);
            if (i >= n_ && column >= n_) continue;
            if ((cost(i, column) + price_[column]) + scan->shift == distance) break;
        }
        const auto i = static_cast<std::size_t>(scan->row);
        const std::int32_t before = mate_of_row_[i];
        match(i, column);
        if (i == free_row) return;
        column = static_cast<std::size_t>(before);
        distance = scan->distance;
    }
}

bool Assignment::solve(const double* cost, std::size_t n, std::size_t spare, Watch& watch) {
    cost_ = cost;
    n_ = n;
    spare_ = spare;
    kernels_ = &kernels();
    const std::size_t total = columns();
    price_.assign(total, 0.0);
    zeros_.assign(spare ? n : 0, 0.0);
    lows_.resize(n);
    free_rows_.clear();
    ties_ = 0;
    distance_.resize(total);
    open_price_.resize(total);
    nearest_.resize(blocks(n) + blocks(spare));
    mate_of_row_.assign(total, -1);
    mate_of_column_.assign(total, -1);

    double mean;
    if (!greedy(mean)) return false;
    if (total <= small_size) reduce_rows();
    std::size_t done = 0;
    const std::size_t left = free_rows_.size();
    std::size_t scans = left <= few_free || 2 * ties_ > total ? patience * total : 0;
    if (scans > 0)
        while (done < free_rows_.size() && augment(free_rows_[done], scans, watch)) ++done;
    if (done == free_rows_.size()) return true;

    double largest = std::abs(mean);
    for (const double price : price_) largest = std::max(largest, std::abs(price));
    auction(std::max(first_epsilon * mean, 1e-12 * largest), watch);
    keep_tight();
    scans = static_cast<std::size_t>(-1);
    for (const std::int32_t i : free_rows_) augment(i, scans, watch);
    return true;
}

void Assignment::grow(Watch& watch) {
    const std::size_t last = columns() - 1;
    const auto free_row = static_cast<std::size_t>(mate_of_column_[last]);
    const auto free_column = static_cast<std::size_t>(mate_of_row_[last]);
    mate_of_row_[free_row] = mate_of_column_[free_column] = -1;
    --spare_;
    std::size_t scans = static_cast<std::size_t>(-1);
    augment(free_row, scans, watch);
}

double Assignment::price(double* column_prices) const {
    // Spare columns cost every row the same, so the used ones share the lowest price; likewise for spare rows.
    // Adding zero takes the sign off zeros, which would tell the width of the registers.
    const double low = kernels_->minimum(price_.data(), n_);
    for (std::size_t j = 0; j < n_; ++j) column_prices[j] = (price_[j] - low) + 0.0;
    if (spare_ > 0) return (kernels_->minimum(price_.data() + n_, spare_) - low) + 0.0;
    double highest = -infinity;
    for (std::size_t i = 0; i < n_; ++i) {
        const auto j = static_cast<std::size_t>(mate_of_row_[i]);
        highest = std::max(highest, cost_[i * n_ + j] + column_prices[j]);
    }
    return highest + 0.0;
}

}  // namespace spadeful
