#include "line.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace spadeful {

namespace {

constexpr std::int32_t none = -1;

// What a path from near[0] over far[0], near[1], ... to far[count - 1] adds to the squared cost: near[t] takes the place
// of near[t + 1] at far[t]. Four sums at a time do not wait for each other.
double squared_path(const double* near, const double* far, std::size_t count) {
    double sums[4] = {0, 0, 0, 0};
    const auto term = [&](std::size_t t) { return (near[t] - near[t + 1]) * ((near[t] - far[t]) + (near[t + 1] - far[t])); };
    std::size_t t = 0;
    for (; t + 4 < count; t += 4)
        for (std::size_t lane = 0; lane < 4; ++lane) sums[lane] += term(t + lane);
    for (; t + 1 < count; ++t) sums[0] += term(t);
    const double last = near[count - 1] - far[count - 1];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + last * last;
}

}  // namespace

void Line::place(const double* x, std::size_t m, std::size_t x_times, const double* y, std::size_t n, std::size_t y_times) {
    const auto sort = [&](const double* points, std::size_t count, std::size_t times, std::vector<double>& sorted,
                          std::vector<std::int32_t>& which) {
        order_.resize(count);
        for (std::size_t i = 0; i < count; ++i) order_[i] = {points[i], static_cast<std::int32_t>(i)};
        std::sort(order_.begin(), order_.end());
        sorted.clear();
        which.clear();
        for (const auto& [place, i] : order_) {
            sorted.insert(sorted.end(), times, place);
            which.insert(which.end(), times, i);
        }
    };
    sort(x, m, x_times, x_, row_);
    sort(y, n, y_times, y_, column_);
}

void Line::start() {
    const std::size_t count = x_.size() + y_.size();
    at_.resize(count);
    is_x_.resize(count);
    rank_.resize(count);
    before_.resize(count);
    after_.resize(count);
    active_.assign(count, false);
    heap_.clear();
    for (std::size_t k = 0, i = 0, j = 0; k < count; ++k) {
        is_x_[k] = j == y_.size() || (i < x_.size() && x_[i] <= y_[j]);
        at_[k] = is_x_[k] ? x_[i] : y_[j];
        rank_[k] = static_cast<std::int32_t>(is_x_[k] ? i++ : j++);
        before_[k] = static_cast<std::int32_t>(k) - 1;
        after_[k] = k + 1 < count ? static_cast<std::int32_t>(k) + 1 : none;
    }
    if (power_ == Power::one) {
        // The number of x less that of y passes up and down by turns between two values; see price().
        sums_.resize(count);
        std::vector<std::int32_t> last(count + 1, none);
        std::size_t height = y_.size();
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t level = is_x_[k] ? height++ : --height;
            const std::int32_t l = last[level];
            const auto from = static_cast<std::size_t>(l);
            sums_[k] = l == none ? 0.0 : sums_[from] + (is_x_[from] ? at_[k] - at_[from] : at_[from] - at_[k]);
            last[level] = static_cast<std::int32_t>(k);
        }
    }
    for (std::size_t k = 1; k < count; ++k) offer(static_cast<std::int32_t>(k) - 1, static_cast<std::int32_t>(k), 0.0);
}

// Between an x and a y that are free, with only active points between, the flow over each stretch of the line changes by
// one: the cost |x - y| grows by the stretches where the flow goes the same way or there is none, and falls by the others.
// It turns where the number of x less that of y, over all points, passes the value which it takes at the two ends: the
// signed stretches, summed up over the points that pass there, give the cost as a difference.
double Line::price(std::int32_t left, std::int32_t right) const {
    const auto l = static_cast<std::size_t>(left), r = static_cast<std::size_t>(right);
    if (power_ == Power::one) return is_x_[l] ? sums_[r] - sums_[l] : sums_[l] - sums_[r];
    const auto own = static_cast<std::size_t>(rank_[l]), other = l - own, pairs = (r - l + 1) / 2;
    return is_x_[l] ? squared_path(x_.data() + own, y_.data() + other, pairs)
                    : squared_path(y_.data() + own, x_.data() + other, pairs);
}

void Line::offer(std::int32_t left, std::int32_t right, double paid) {
    const auto l = static_cast<std::size_t>(left), r = static_cast<std::size_t>(right);
    if (is_x_[l] == is_x_[r]) return;
    const bool cheap = power_ == Power::one || right == left + 1;
    heap_.push_back({cheap ? price(left, right) : paid, left, right, cheap});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
}

bool Line::step(bool want_price, Candidate& found) {
    const auto pop = [&] {
        std::pop_heap(heap_.begin(), heap_.end(), Later{});
        heap_.pop_back();
    };
    const auto drop_stale = [&] {
        while (!heap_.empty() && (active_[static_cast<std::size_t>(heap_.front().left)] ||
                                  active_[static_cast<std::size_t>(heap_.front().right)]))
            pop();
    };
    for (;;) {
        drop_stale();
        if (heap_.empty()) return false;
        found = heap_.front();
        pop();
        if (found.known) break;
        drop_stale();
        if (heap_.empty() && !want_price) break;  // no other to compare with
        found.price = std::max(found.price, price(found.left, found.right));  // prices never fall, but by rounding
        found.known = true;
        if (heap_.empty() || !Later{}(found, heap_.front())) break;
        heap_.push_back(found);
        std::push_heap(heap_.begin(), heap_.end(), Later{});
    }
    const std::int32_t left = before_[static_cast<std::size_t>(found.left)];
    const std::int32_t right = after_[static_cast<std::size_t>(found.right)];
    active_[static_cast<std::size_t>(found.left)] = active_[static_cast<std::size_t>(found.right)] = true;
    if (left != none) after_[static_cast<std::size_t>(left)] = right;
    if (right != none) before_[static_cast<std::size_t>(right)] = left;
    if (left != none && right != none) offer(left, right, found.price);
    return true;
}

std::vector<LineStep> Line::path(Watch& watch) {
    start();
    std::vector<LineStep> steps;
    steps.reserve(std::min(x_.size(), y_.size()));
    for (Candidate found; step(true, found); watch.tick()) {
        auto x = static_cast<std::size_t>(found.left), y = static_cast<std::size_t>(found.right);
        if (!is_x_[x]) std::swap(x, y);
        steps.push_back({row_[static_cast<std::size_t>(rank_[x])], column_[static_cast<std::size_t>(rank_[y])], found.price});
    }
    return steps;
}

// The first active x with the first active y, and so on.
std::vector<Line::Pair> Line::pairs() const {
    std::vector<Pair> found;
    found.reserve(std::min(x_.size(), y_.size()));
    std::size_t xs = 0, ys = 0;
    for (std::size_t k = 0; k < active_.size(); ++k) {
        if (!active_[k]) continue;
        std::size_t& own = is_x_[k] ? xs : ys;
        if (own == found.size()) found.push_back({none, none});
        (is_x_[k] ? found[own].x : found[own].y) = rank_[k];
        ++own;
    }
    return found;
}

std::vector<Entry> Line::whole() const {
    const std::size_t m = x_.size(), n = y_.size();
    std::vector<Entry> entries;
    entries.reserve(m + n);
    // Each x is n parts, and each y is m.
    for (std::size_t i = 0, j = 0, of_x = n, of_y = m; i < m;) {
        const std::size_t parts = std::min(of_x, of_y);
        const double mass = static_cast<double>(parts) / (static_cast<double>(m) * static_cast<double>(n));
        entries.push_back({row_[i], column_[j], mass});
        if ((of_x -= parts) == 0) ++i, of_x = n;
        if ((of_y -= parts) == 0) ++j, of_y = m;
    }
    return entries;
}

std::vector<Entry> Line::plan(std::size_t count, double rest, double mass, Watch& watch) {
    Candidate found;
    start();
    for (std::size_t k = 0; k < count && step(false, found); ++k) watch.tick();
    const std::vector<Pair> whole = pairs();
    const std::vector<Pair> more = rest > 0 && step(false, found) ? pairs() : std::vector<Pair>();
    std::vector<Entry> entries;
    entries.reserve(std::max(whole.size(), more.size()));
    const auto add = [&](const Pair& pair, double part) {
        const std::int32_t i = row_[static_cast<std::size_t>(pair.x)], j = column_[static_cast<std::size_t>(pair.y)];
        if (!entries.empty() && entries.back().row == i && entries.back().column == j)
            entries.back().mass += part * mass;
        else
            entries.push_back({i, j, part * mass});
    };
    if (more.empty()) {
        for (const Pair& pair : whole) add(pair, 1.0);
        return entries;
    }
    // A mass between two numbers of pairs: both plans, in their shares. They differ in one run only.
    for (auto w = whole.begin(), t = more.begin(); w != whole.end() || t != more.end();) {
        const bool both = w != whole.end() && t != more.end() && *w == *t;
        const bool first = both || t == more.end() || (w != whole.end() && *w < *t);
        add(first ? *w : *t, both ? 1.0 : first ? 1.0 - rest : rest);
        if (first) ++w;
        if (both || !first) ++t;
    }
    return entries;
}

}  // namespace spadeful
