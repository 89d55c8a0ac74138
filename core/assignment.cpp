#include "assignment.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "transpose.hpp"

namespace spadeful {

namespace {
// Measured over 2-D and 128-D clouds, clusters, colours of photos, uniform and integer costs, n = 64 .. 2000.
//
// Row scans per row that paths alone may take before the auction is called, if few rows are left or most had
// ties, which make paths short and auctions long.
constexpr std::size_t few_free = 50, patience = 30;
// For less than all pairs, and as many again once nine tenths are found.
constexpr std::size_t partial_patience = 40;
// None is taken if bids left so large a share of all rows to be matched, unless the problem is too small to be halved.
// For all pairs, a small problem is halved rather than put to auction from such a share on.
constexpr double fierce = 0.55, fierce_for_all = 0.5;
constexpr std::size_t smallest_halved = 48;
// Row reduction pays up to this size, for so many bids per row.
constexpr std::size_t small_size = 400, reduction_bids = 2;
// Pairs that are added one by one rather than by another guess of their price; more where similar problems told it.
constexpr std::size_t few_pairs = 3, few_if_known = 12;
// The first guess of the price of a pair goes so much beyond the bound from below, as a share of the bound's distance
// from that for half as many pairs; none is beyond the highest.
constexpr double first_step = 0.6, highest_price = 1e306;
// Best columns of a row from which costs count as tied, for all pairs and for some.
constexpr std::size_t many_ties = 6, some_ties = 3;
// Epsilon starts from a share of what rows pay beyond the least, and grows after so many bids per row; past the
// cap, paths do the rest.
constexpr double first_epsilon = 0.3, epsilon_up = 10, epsilon_down = 8;
constexpr std::size_t bids_per_row = 6, bid_cap = 400;
constexpr auto no_limit = static_cast<std::size_t>(-1);
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

// Whether rows have so many best columns each, judged by a few rows.
bool Assignment::tied(std::size_t many) const {
    constexpr std::size_t sample = 8;
    std::size_t ties = 0;
    for (std::size_t k = 0; k < sample; ++k) {
        const double* c = row(k * n_ / sample);
        const double best = kernels_->minimum(c, n_);
        for (std::size_t j = 0; (j = kernels_->find(c, best, j, n_)) < n_; ++j) ++ties;
    }
    return ties >= many * sample;
}

// Column reduction, then every row in turn takes its best column if that is free. Where rows have ties, raw costs
// do as well as reduced ones, and one pass through memory is enough.
bool Assignment::greedy(double& mean) {
    const bool raw = tied(many_ties);
    bool finite = true;
    std::fill_n(lows_.data(), n_, infinity);
    for (std::size_t i = 0; i < n_; ++i) {
        finite &= kernels_->fold_minimum(row(i), lows_.data(), n_);
        if (raw && finite) take_best(i);
    }
    mean = 0;
    if (!finite || raw) return finite;
    for (std::size_t j = 0; j < n_; ++j) price_[j] = -lows_[j];
    for (std::size_t i = 0; i < n_; ++i) mean += take_best(i) / static_cast<double>(n_);
    return true;
}

// Augmenting row reduction: free rows take their best column from whoever has it and raise its price to where
// they would not mind the second best, so that every pair stays best for its row.
void Assignment::reduce_rows(std::size_t bids) {
    stack_.assign(free_rows_.rbegin(), free_rows_.rend());
    free_rows_.clear();
    for (; !stack_.empty(); --bids) {
        const auto i = static_cast<std::size_t>(stack_.back());
        if (bids == 0) {
            free_rows_.insert(free_rows_.end(), stack_.rbegin(), stack_.rend());
            return;
        }
        stack_.pop_back();
        const BestTwo best = best_two(i);
        if (best.first > pair_price_) {
            least_[i] = best.first;
            continue;
        }
        ties_ += best.first == best.second;
        const double second = std::min(best.second, pair_price_);
        auto j = static_cast<std::size_t>(best.index);
        if (best.first == second && mate_of_column_[j] >= 0) {
            j = find_free_tie(i, best);
            if (j == columns()) {
                free_rows_.push_back(static_cast<std::int32_t>(i));
                continue;
            }
        } else if (second < infinity) {
            price_[j] += second - best.first;
        }
        if (const std::int32_t old = mate_of_column_[j]; old >= 0) {
            mate_of_row_[old] = -1;
            stack_.push_back(old);
        } else {
            ++matched_;
        }
        match(i, j);
    }
}

// Rows bid for their best column as much as it is better than the second, plus epsilon. Where bids do not
// settle, epsilon grows; from there it falls back in steps to where it began.
void Assignment::auction(double mean, Watch& watch) {
    const std::size_t n = columns();
    double largest = std::abs(mean);
    for (const double price : price_) largest = std::max(largest, std::abs(price));
    const double last = std::max(first_epsilon * mean, 1e-12 * largest);
    double epsilon = last;
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

// Prices from the optimal matching of every other row and column: a column costs what any of those rows would give for it.
// Points that lie close give nearly the same, so most of the fight for columns is over. False if there is no such matching.
bool Assignment::take_half_prices(Watch& watch) {
    if (n_ < smallest_halved) return false;
    const std::size_t half = n_ / 2, size = std::max<std::size_t>(1, (n_ - spare_) / 2);
    half_cost_.resize(half * half);
    for (std::size_t i = 0; i < half; ++i)
        for (std::size_t j = 0; j < half; ++j) half_cost_[i * half + j] = row(2 * i)[2 * j];
    if (!half_) half_ = std::make_unique<Assignment>();
    if (!half_->solve(half_cost_.data(), half, size, watch)) return false;
    half_price_.resize(half);
    const double pair_price = half_->price(half_price_.data());
    std::fill_n(price_.begin(), n_, 0.0);
    for (std::size_t i = 0; i < half; ++i) {
        const double* c = row(2 * i);
        const double best = kernels_->best_two(&half_cost_[i * half], half_price_.data(), half).first;
        const double gives = std::min(best, pair_price);
        kernels_->outbid(c, gives, price_.data(), n_);
    }
    return true;
}

// Good prices, if there are any, in place of the pairs so far.
bool Assignment::take_prices(Watch& watch, Guess* guess) {
    if (!(guess && guess->prices(turned_, price_.data())) && !take_half_prices(watch)) return false;
    std::fill(mate_of_row_.begin(), mate_of_row_.end(), -1);
    std::fill(mate_of_column_.begin(), mate_of_column_.end(), -1);
    return true;
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

void Assignment::resize_search() {
    open_price_.resize(columns());
    keys_.resize(n_);
    marks_.resize(n_);
    reached_.resize(columns() + 1);  // a spare row may be among them
    costs_.resize(columns() + 1);
    head_of_row_.resize(columns());
    trees_.clear(columns() + 1);
}

void Assignment::open_search() {
    std::copy_n(price_.begin(), columns(), open_price_.begin());
    std::fill_n(keys_.begin(), n_, infinity);
    heads_.clear();
    spare_price_ = spare_ > 0 ? price_.back() : infinity;
    spare_key_ = bound_ = infinity;
    rows_ = scanned_ = 0;
    tied_ = 2 * ties_ > n_;
}

void Assignment::add(std::size_t i, std::int32_t j, double distance, double shift) {
    if (i < n_ && pair_price_ + shift < bound_) {
        bound_ = pair_price_ + shift;
        leaver_ = rows_;
    }
    reached_[rows_] = {distance, static_cast<std::int32_t>(i), j};
    costs_[rows_++] = {row(i), shift};
}

// A row that has a column, and all that hang from it, but for what was reached before: they are reached together.
void Assignment::add_branch(std::size_t i, double distance) {
    const auto add_matched = [&](std::size_t of, std::int32_t j) {
        open_price_[j] = infinity;
        add(of, j, distance, distance - (cost(of, j) + price_[j]));
    };
    std::size_t next = rows_;
    add_matched(i, mate_of_row_[i]);
    for (; !tied_ && next < rows_; ++next)
        for (std::int32_t k = trees_.first(reached_[next].row); k >= 0; k = trees_.next(k))
            if (const std::int32_t j = mate_of_row_[k]; open_price_[j] < infinity) add_matched(k, j);
}

// A row that has no column, for paths to begin with.
void Assignment::add_root(std::size_t i) {
    add(i, -1, 0.0, 0.0);
    if (tied_) return;
    for (std::int32_t k = trees_.first(i); k >= 0; k = trees_.next(k)) {
        const std::int32_t j = mate_of_row_[k];
        add_branch(k, cost(i, j) + price_[j]);
    }
}

// Scans the rows that were added, if any, in one go.
void Assignment::scan() {
    const std::size_t begin = std::exchange(scanned_, rows_), count = rows_ - begin;
    scans_ -= std::min(scans_, count);
    const CostRow nothing{zeros_.data(), infinity};
    nearest_ = kernels_->relax(count ? &costs_[begin] : &nothing, std::max<std::size_t>(count, 1), open_price_.data(),
                               static_cast<double>(begin), keys_.data(), marks_.data(), n_);
    if (spare_ == 0) return;
    for (std::size_t k = begin; k < rows_; ++k) {
        const bool real = static_cast<std::size_t>(reached_[k].row) < n_;  // spare rows do not match spare columns
        if (real && costs_[k].shift < spare_key_) {
            spare_key_ = costs_[k].shift;
            spare_mark_ = static_cast<double>(k);
        }
    }
    const double distance = spare_key_ + spare_price_;
    if (distance < nearest_.distance) nearest_ = {distance, static_cast<std::ptrdiff_t>(n_)};
}

Assignment::Head Assignment::head(std::size_t column) const {
    const bool real = column < n_;
    return {mate_of_column_[column], static_cast<std::int32_t>(column),
            static_cast<std::int32_t>(real ? marks_[column] : spare_mark_), real ? keys_[column] : spare_key_};
}

// The row that a head was reached from: of its group the first whose sum, formed in the same order, equals its key.
std::size_t Assignment::origin(const Head& head) const {
    for (auto k = static_cast<std::size_t>(head.group);; ++k) {
        const auto i = static_cast<std::size_t>(reached_[k].row), j = static_cast<std::size_t>(head.column);
        if ((i < n_ || j < n_) && cost(i, j) + costs_[k].shift == head.key) return i;
    }
}

// The row that a path reached another from.
std::size_t Assignment::row_before(std::size_t row) const {
    return tied_ ? origin(heads_[head_of_row_[row]]) : static_cast<std::size_t>(trees_.parent(row));
}

// Reaches the nearest columns, those that are tied among them: all spare ones are. True if one is free, and nearest then.
bool Assignment::reach() {
    const auto first = static_cast<std::size_t>(nearest_.index);
    const bool spare = first >= n_;
    if (spare) spare_price_ = infinity;
    for (std::size_t j = first; j < (spare ? columns() : n_);) {
        if (mate_of_column_[j] < 0) {
            nearest_.index = static_cast<std::ptrdiff_t>(j);
            return true;
        }
        if (std::exchange(open_price_[j], infinity) < infinity) {
            const Head& added = heads_.emplace_back(head(j));
            if (tied_) head_of_row_[added.row] = static_cast<std::int32_t>(heads_.size() - 1);
        }
        if (!spare && !tied_) break;
        j = spare ? j + 1 : kernels_->find_sum(keys_.data(), open_price_.data(), nearest_.distance, j + 1, n_);
    }
    return false;
}

// Dijkstra from the rows added so far, to the nearest free column or to a row that leaves first.
Assignment::End Assignment::search(Watch& watch) {
    double distance = -infinity;
    for (std::size_t next = 0;;) {  // of the heads, the first whose row is still to be scanned
        watch.tick();
        scan();
        const bool waiting = next < heads_.size();
        if (!waiting && nearest_.distance > bound_) return End::leaver;
        if ((!waiting || nearest_.distance <= distance) && reach()) return End::column;
        if (scans_ == 0) return End::tired;
        while (next < heads_.size()) {
            const Head& head = heads_[next++];
            distance = head.key + price_[head.column];
            add_branch(head.row, distance);
            if (tied_) break;
        }
    }
}

// The shortest path from one free row. False if the scans ran out; prices and pairs are as before then.
bool Assignment::augment(std::size_t free_row, Watch& watch) {
    open_search();
    add_root(free_row);
    switch (search(watch)) {
        case End::column: take_path(); return true;
        case End::leaver:
            raise_prices(bound_);
            leave();
            least_[reached_[leaver_].row] = std::nextafter(pair_price_, infinity);
            return true;
        default: return false;
    }
}

// The path to the nearest column, which is free.
void Assignment::take_path() {
    const auto column = static_cast<std::size_t>(nearest_.index);
    raise_prices(nearest_.distance);
    flip_path(column, origin(head(column)), Trees::none);
    ++matched_;
}

// The leaver gives its column, if it has one, to the path that reached it.
void Assignment::leave() {
    const std::int32_t i = reached_[leaver_].row;
    const std::size_t before = mate_of_row_[i] < 0 ? n_ : row_before(i);
    const std::int32_t column = std::exchange(mate_of_row_[i], -1);
    if (!tied_) trees_.hang(i, Trees::none);
    if (column >= 0) flip_path(column, before, i);
}

// Walks back from a column, and the row that it was reached from, to the row that the path began with. Each row gets the
// column of the next one, which it hangs from then.
void Assignment::flip_path(std::size_t column, std::size_t row, std::int32_t next) {
    for (;;) {
        const std::int32_t column_before = mate_of_row_[row];
        const std::size_t before = column_before < 0 ? n_ : row_before(row);
        match(row, column);
        if (!tied_) trees_.hang(row, next);
        if (column_before < 0) return;
        next = static_cast<std::int32_t>(row);
        column = static_cast<std::size_t>(column_before);
        row = before;
    }
}

// Of all columns reached, up to a distance: heads then hang from where they were reached.
void Assignment::raise_prices(double distance) {
    if (!tied_)
        for (const Head& each : heads_) trees_.hang(each.row, static_cast<std::int32_t>(origin(each)));
    for (std::size_t k = 0; k < rows_; ++k)
        if (const Reach& r = reached_[k]; r.column >= 0) price_[r.column] += std::max(0.0, distance - r.distance);
}

// One shortest path from all unmatched rows; its length is what the pair costs.
void Assignment::grow(Watch& watch) {
    const double before = std::exchange(pair_price_, infinity);
    scans_ = no_limit;
    open_search();
    for (std::size_t i = 0; i < n_; ++i)
        if (mate_of_row_[i] < 0) add_root(i);
    search(watch);
    take_path();
    pair_price_ = std::max(before, nearest_.distance);
}

// Takes away the dearest pair: the path from a spare row, which may have any column for its price, to the row that leaves.
void Assignment::shrink(Watch& watch) {
    scans_ = no_limit;
    open_search();
    for (std::size_t j = 0; j < n_; ++j)
        if (mate_of_column_[j] < 0) open_price_[j] = infinity;
    add_root(n_);
    search(watch);
    raise_prices(bound_);
    leave();
    mate_of_column_[std::exchange(mate_of_row_[n_], -1)] = -1;
    trees_.hang(n_, Trees::none);
    for (double& each : price_) each = std::max(0.0, each - bound_);
    pair_price_ -= bound_;
    --matched_;
}

// Sets the price of a pair to a bound from below: what all but so many rows, or so many columns, cost more than. Returns
// one at which there would be about half as many pairs.
double Assignment::guess_price(std::size_t size) {
    double half = pair_price_ = -infinity;
    const auto bound = [&] {
        const auto begin = lows_.begin(), last = begin + static_cast<std::ptrdiff_t>(size);
        std::nth_element(begin, last, lows_.end());
        if (*last <= pair_price_) return;
        pair_price_ = *last;
        const auto middle = begin + static_cast<std::ptrdiff_t>(size / 2);
        std::nth_element(begin, middle, last);
        half = *middle;
    };
    bound();
    std::copy(least_.begin(), least_.end(), lows_.begin());
    bound();
    return half;
}

// Whether bids found mostly ties, as where points repeat: bids then decide little, and auctions take long.
bool Assignment::too_tied() const { return n_ > small_size && 4 * ties_ > n_; }

// Whether bids left most rows free and most pairs to be found, as where many rows fight over few columns: paths would be long.
bool Assignment::too_fierce(std::size_t size, double share) const {
    const auto most = static_cast<std::size_t>(share * static_cast<double>(n_));
    return n_ >= smallest_halved && free_rows_.size() > most && size > matched_ + most;
}

// Makes the matching optimal at the present price of a pair. Pairs that cost just as much are added up to the size.
bool Assignment::match_at_price(std::size_t size, Watch& watch) {
    free_rows_.clear();
    for (std::size_t i = 0; i < n_; ++i)
        if (mate_of_row_[i] < 0 && least_[i] < pair_price_) free_rows_.push_back(static_cast<std::int32_t>(i));
    reduce_rows(reduction_bids * free_rows_.size());
    if (too_tied() || too_fierce(size, fierce)) return false;
    trees_.clear(n_ + 1);  // bids know nothing of them
    for (const std::int32_t i : free_rows_)
        if (!augment(static_cast<std::size_t>(i), watch)) return false;
    for (std::size_t i = 0; i < n_ && matched_ < size; ++i)
        if (mate_of_row_[i] < 0 && least_[i] == pair_price_ && !augment(i, watch)) return false;
    return true;
}

// Spare points for the auction. Rows that would rather not pay for a pair have the spare columns, and free
// columns the spare rows.
void Assignment::add_spares(std::size_t count) {
    spare_ = count;
    resize_search();
    price_.resize(columns(), std::exchange(pair_price_, infinity));
    mate_of_row_.resize(columns() + 1, -1);
    mate_of_column_.resize(columns(), -1);
    for (std::size_t i = 0, next = n_; i < n_ && next < columns(); ++i)
        if (mate_of_row_[i] < 0 && least_[i] >= price_.back()) match(i, next++);
    for (std::size_t j = 0, next = n_; j < n_ && next < columns(); ++j)
        if (mate_of_column_[j] < 0) match(next++, j);
}

// Spare columns cost every row the same, so the used ones share the lowest price, that of a pair; likewise for spare
// rows and free columns.
void Assignment::drop_spares() {
    const double low = kernels_->minimum(price_.data(), n_);
    pair_price_ = spare_ > 0 ? kernels_->minimum(price_.data() + n_, spare_) - low : -infinity;
    for (std::size_t j = 0; j < n_; ++j) price_[j] -= low;
    for (std::size_t i = 0; i < n_; ++i) {
        if (mate_of_row_[i] >= static_cast<std::int32_t>(n_)) mate_of_row_[i] = -1;
        if (mate_of_column_[i] >= static_cast<std::int32_t>(n_)) mate_of_column_[i] = -1;
        if (spare_ == 0) pair_price_ = std::max(pair_price_, row(i)[mate_of_row_[i]] + price_[mate_of_row_[i]]);
    }
    price_.resize(n_);
    mate_of_row_.resize(n_);
    mate_of_row_.push_back(-1);  // a spare row, for when a pair is taken away
    mate_of_column_.resize(n_);
    matched_ = n_ - spare_;
    spare_ = 0;
    trees_.clear(n_ + 1);
}

// From good prices to all pairs.
void Assignment::augment_all(Watch& watch) {
    const std::size_t ties = ties_;
    keep_tight();
    trees_.clear(columns() + 1);
    if (spare_ > 0) ties_ = ties;  // spare points are all tied, which says nothing about the costs
    scans_ = no_limit;
    for (const std::int32_t i : free_rows_) augment(static_cast<std::size_t>(i), watch);
}

bool Assignment::match_all(Watch& watch, Guess* guess) {
    double mean;
    if (!greedy(mean)) return false;
    if (n_ <= small_size) reduce_rows(reduction_bids * n_);
    std::size_t done = 0;
    if (free_rows_.size() <= few_free || 2 * ties_ > n_) {
        scans_ = patience * n_;
        while (done < free_rows_.size() && augment(static_cast<std::size_t>(free_rows_[done]), watch)) ++done;
    }
    if (done < free_rows_.size()) {
        const bool halve = n_ <= small_size && too_fierce(n_, fierce_for_all);
        if (!halve || !take_prices(watch, guess)) auction(mean, watch);
        augment_all(watch);
    }
    drop_spares();
    return true;
}

bool Assignment::match_some(std::size_t size, Watch& watch, Guess* guess) {
    if (tied(some_ties)) return false;  // most rows would wait for pairs at one price
    bool finite = true;
    std::fill_n(lows_.data(), n_, infinity);
    for (std::size_t i = 0; i < n_; ++i) {
        finite &= kernels_->fold_minimum(row(i), lows_.data(), n_);
        least_[i] = kernels_->minimum(row(i), n_);
    }
    if (!finite) return false;
    double price_before, matched_before = -1;
    PairPrices known;
    const bool knows = guess && guess->pair_prices(known);
    if (knows) {
        price_before = pair_price_ = known.before;
    } else {
        price_before = guess_price(size);
        pair_price_ += first_step * (pair_price_ - price_before);
    }
    scans_ = partial_patience * n_;
    for (bool nearly = false;;) {
        if (!match_at_price(size, watch)) {
            if (too_tied()) return false;
            const auto end = lows_.begin() + static_cast<std::ptrdiff_t>(size);
            const double mean = std::accumulate(lows_.begin(), end, 0.0) / static_cast<double>(size);
            add_spares(n_ - size);
            if (!take_prices(watch, guess)) auction(mean - *std::min_element(lows_.begin(), end), watch);
            augment_all(watch);
            drop_spares();
            return true;
        }
        if (matched_ + (knows ? few_if_known : few_pairs) >= size) break;
        if (!nearly && 10 * matched_ >= 9 * size) {
            nearly = true;
            scans_ += partial_patience * n_;
        }
        const auto matched = static_cast<double>(matched_);
        if (matched_before < 0) {
            matched_before = matched / 2;
            if (knows) {  // as steep as it was there
                price_before = pair_price_ - (known.after - known.before);
                matched_before = matched - (1 - PairPrices::nearly) * static_cast<double>(size);
            }
        }
        // The straight line through the last two prices; twice as far if the last step brought nothing.
        const double times = matched > matched_before ? (static_cast<double>(size) - matched) / (matched - matched_before) : 2;
        const double step = (pair_price_ - price_before) * times;
        if (!(step > 0 && pair_price_ + step < highest_price)) break;
        price_before = std::exchange(pair_price_, pair_price_ + step);
        matched_before = matched;
    }
    resize(size, watch);
    return true;
}

void Assignment::resize(std::size_t size, Watch& watch) {
    while (matched_ < size) grow(watch);
    while (matched_ > size) shrink(watch);
}

// Whether the rows' costs differ much less than the columns', judged by a few columns and rows.
bool Assignment::rows_are_alike() const {
    constexpr std::size_t sample = 8;
    const auto spread = [&](std::size_t stride, std::size_t other) {
        double sum = 0, squares = 0;
        for (std::size_t i = 0; i < n_; ++i) {
            double x = 0;
            for (std::size_t k = 0; k < sample; ++k) x += cost_[i * stride + k * n_ / sample * other];
            sum += x;
            squares += x * x;
        }
        return static_cast<double>(n_) * squares - sum * sum;
    };
    return spread(1, n_) > 2 * spread(n_, 1);
}

void Assignment::start(const double* cost, std::size_t n) {
    cost_ = cost;
    n_ = n;
    spare_ = matched_ = ties_ = 0;
    pair_price_ = infinity;
    kernels_ = &kernels(n);
    // Rows far from all columns leave at once, so the paths are shorter from the side that is spread out more.
    turned_ = n <= small_size && rows_are_alike();
    if (turned_) {
        transposed_.resize(n * n);
        transpose(cost, transposed_.data(), n, n);
        cost_ = transposed_.data();
    }
    resize_search();
    price_.assign(n, 0.0);
    zeros_.assign(n, 0.0);
    least_.resize(n);
    lows_.resize(n);
    mate_of_row_.assign(n + 1, -1);
    mate_of_column_.assign(n, -1);
    free_rows_.clear();
}

bool Assignment::solve(const double* cost, std::size_t n, std::size_t size, Watch& watch, Guess* guess) {
    start(cost, n);
    return size == n ? match_all(watch, guess) : match_some(size, watch, guess);
}

// Adding zero takes the sign off zeros, which would tell the width of the registers.
double Assignment::price(double* column_prices) const {
    for (std::size_t j = 0; j < n_; ++j) {
        if (!turned_) {
            column_prices[j] = price_[j] + 0.0;
        } else {
            const std::int32_t i = mate_of_row_[j];
            column_prices[j] = i < 0 ? 0.0 : std::max(0.0, pair_price_ - (row(j)[i] + price_[i]));
        }
    }
    return pair_price_ + 0.0;
}

}  // namespace spadeful
