#include "assignment.hpp"

#include <algorithm>
#include <cmath>

namespace spadeful {

namespace {
// Measured over 2-D and 128-D clouds, clusters, uniform and integer costs, n = 64 .. 2000.
constexpr std::size_t few_free = 6;       // with fewer than n / 6 rows free, paths alone are tried first
constexpr std::size_t patience = 6;       // ... for as many row scans per row
constexpr double first_epsilon = 0.3;     // of the mean reduced row minimum
constexpr std::size_t bids_per_row = 6;   // bids per row before epsilon grows
constexpr double epsilon_up = 10, epsilon_down = 8;
constexpr std::size_t bid_cap = 400;      // bids per row in all: past that, paths do the rest
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

bool Assignment::reduce_columns() {
    std::fill_n(price_.data(), n_, infinity);
    bool finite = true;
    for (std::size_t i = 0; i < n_; ++i) finite &= kernels_->fold_minimum(cost_ + i * n_, price_.data(), n_);
    for (std::size_t j = 0; j < n_; ++j) price_[j] = -price_[j];
    return finite;
}

// A free column as cheap as the best one, or columns().
std::size_t Assignment::find_free_tie(std::size_t i, const BestTwo& best) const {
    const double* c = row(i);
    for (std::size_t j = static_cast<std::size_t>(best.index); j < n_; ++j)
        if (mate_of_column_[j] < 0 && c[j] + price_[j] == best.first) return j;
    if (i < n_)
        for (std::size_t j = n_; j < columns(); ++j)
            if (mate_of_column_[j] < 0 && price_[j] == best.first) return j;
    return columns();
}

// Every row in turn takes its best column if that is free. Returns the mean reduced minimum of the real rows.
double Assignment::greedy(std::vector<std::int32_t>& free_rows) {
    free_rows.clear();
    double total = 0;
    for (std::size_t i = 0; i < columns(); ++i) {
        const BestTwo best = best_two(i);
        if (i < n_) total += best.first / static_cast<double>(n_);
        std::size_t j = static_cast<std::size_t>(best.index);
        if (mate_of_column_[j] >= 0 && best.first == best.second) j = find_free_tie(i, best);
        if (j < columns() && mate_of_column_[j] < 0)
            match(i, j);
        else
            free_rows.push_back(static_cast<std::int32_t>(i));
    }
    return total;
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

// Keeps the pairs that are exactly best for their row; the other rows take a free best column or stay free.
void Assignment::keep_tight(std::vector<std::int32_t>& free_rows) {
    free_rows.clear();
    for (std::size_t i = 0; i < columns(); ++i) {
        const std::int32_t j = mate_of_row_[i];
        if (j >= 0 && cost(i, j) + price_[j] == best_two(i).first) continue;
        if (j >= 0) mate_of_row_[i] = mate_of_column_[j] = -1;
        free_rows.push_back(static_cast<std::int32_t>(i));
    }
    std::size_t left = 0;
    for (const std::int32_t i : free_rows) {
        const BestTwo best = best_two(i);
        if (mate_of_column_[best.index] < 0)
            match(i, best.index);
        else
            free_rows[left++] = i;
    }
    free_rows.resize(left);
}

// Dijkstra from one free row to the nearest free column. False if the scans ran out; nothing has changed then.
bool Assignment::augment(std::size_t free_row, std::size_t& scans, Watch& watch) {
    const std::size_t n = columns();
    std::fill_n(distance_.begin(), n, infinity);
    std::copy_n(price_.begin(), n, open_price_.begin());  // infinite once a column is in the tree
    scanned_rows_.clear();
    scanned_columns_.clear();
    shifts_.clear();
    scanned_distances_.clear();
    std::size_t i = free_row;
    double shift = 0;
    for (;;) {
        watch.tick();
        if (scans == 0) return false;
        --scans;
        scanned_rows_.push_back(static_cast<std::int32_t>(i));
        shifts_.push_back(shift);
        double nearest = kernels_->relax(row(i), open_price_.data(), shift, distance_.data(), n_);
        if (spare_ > 0) {
            double* const tail = distance_.data() + n_;
            nearest = std::min(nearest, i < n_ ? kernels_->relax(zeros_.data(), open_price_.data() + n_, shift, tail, spare_)
                                               : kernels_->minimum(tail, spare_));
        }
        // Among equally near columns a free one ends the search; else the next in turn joins the tree,
        // so that searches through ties do not all begin with the same columns.
        std::size_t next = n;
        bool reached = false;
        for (int part = 0; part < 2 && !reached; ++part) {
            const std::size_t end = part == 0 ? n : turn_;
            for (std::size_t j = part == 0 ? turn_ : 0; (j = kernels_->find(distance_.data(), nearest, j, end)) < end; ++j) {
                if (next == n) next = j;
                if (mate_of_column_[j] < 0) {
                    next = j;
                    reached = true;
                    break;
                }
            }
        }
        turn_ = next + 1 < n ? next + 1 : 0;
        if (reached) {
            flip_path(free_row, next, nearest);
            for (std::size_t k = 0; k < scanned_columns_.size(); ++k)
                price_[scanned_columns_[k]] += nearest - scanned_distances_[k];
            return true;
        }
        scanned_columns_.push_back(static_cast<std::int32_t>(next));
        scanned_distances_.push_back(nearest);
        distance_[next] = open_price_[next] = infinity;
        i = static_cast<std::size_t>(mate_of_column_[next]);
        shift = nearest - (cost(i, next) + price_[next]);
    }
}

// Walks back from a free column. The row that a column was reached from is not stored while searching: it is
// the first whose sum, formed in the same order, equals the distance.
void Assignment::flip_path(std::size_t free_row, std::size_t column, double distance) {
    for (;;) {
        std::size_t k = 0;
        for (;; ++k) {
            const auto i = static_cast<std::size_t>(scanned_rows_[k]);
            if (i >= n_ && column >= n_) continue;
            if ((cost(i, column) + price_[column]) + shifts_[k] == distance) break;
        }
        const auto i = static_cast<std::size_t>(scanned_rows_[k]);
        const std::int32_t before = mate_of_row_[i];
        match(i, column);
        if (i == free_row) return;
        column = static_cast<std::size_t>(before);
        distance = scanned_distances_[k - 1];
    }
}

bool Assignment::solve(const double* cost, std::size_t n, std::size_t spare, Watch& watch) {
    cost_ = cost;
    n_ = n;
    spare_ = spare;
    turn_ = 0;
    kernels_ = &kernels();
    const std::size_t total = columns();
    price_.assign(total, 0.0);
    zeros_.assign(spare ? n : 0, 0.0);
    distance_.resize(total);
    open_price_.resize(total);
    mate_of_row_.assign(total, -1);
    mate_of_column_.assign(total, -1);

    if (!reduce_columns()) return false;
    if (spare) {  // spare columns begin at the price where the mean row is indifferent
        double mean = 0;
        for (std::size_t i = 0; i < n; ++i)
            mean += kernels_->best_two(row(i), price_.data(), n).first / static_cast<double>(n);
        std::fill(price_.begin() + static_cast<std::ptrdiff_t>(n), price_.end(), mean);
    }
    const double scale = greedy(free_rows_);
    std::size_t done = 0;
    std::size_t scans = patience * total;
    if (free_rows_.size() * few_free <= total)
        while (done < free_rows_.size() && augment(free_rows_[done], scans, watch)) ++done;
    if (done == free_rows_.size()) return true;

    double largest = 0;
    for (const double price : price_) largest = std::max(largest, std::abs(price));
    auction(std::max(first_epsilon * scale, 1e-12 * largest), watch);
    keep_tight(free_rows_);
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
    const double low = *std::min_element(price_.begin(), price_.begin() + static_cast<std::ptrdiff_t>(n_));
    for (std::size_t j = 0; j < n_; ++j) column_prices[j] = price_[j] - low;
    if (spare_ > 0) return *std::min_element(price_.begin() + static_cast<std::ptrdiff_t>(n_), price_.end()) - low;
    double highest = -infinity;
    for (std::size_t i = 0; i < n_; ++i) {
        const auto j = static_cast<std::size_t>(mate_of_row_[i]);
        highest = std::max(highest, cost_[i * n_ + j] + column_prices[j]);
    }
    return highest;
}

}  // namespace spadeful
