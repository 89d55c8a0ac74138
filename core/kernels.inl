// The kernels' bodies, over any register width; included by one file per instruction set.
#include "kernels.hpp"
#include "lanes.hpp"

namespace spadeful {
namespace {

constexpr unsigned low_bit(unsigned mask) { return static_cast<unsigned>(__builtin_ctz(mask)); }

template <class L>
BestTwo best_two(const double* x, const double* y, std::size_t n) {
    using V = typename L::Vector;
    V first = L::fill(infinity), second = first, where = L::fill(-1.0), here = L::iota();
    const V step = L::fill(static_cast<double>(L::width));
    std::size_t j = 0;
    for (; j + L::width <= n; j += L::width) {
        const V sum = L::add(L::load(x + j), L::load(y + j));
        second = L::min(second, L::max(first, sum));
        where = L::where_less(sum, first, here, where);
        first = L::min(first, sum);
        here = L::add(here, step);
    }
    // Of the lanes that share the smallest sum the one with the lowest index is the first; its own second and
    // the firsts of all others compete for the second.
    BestTwo best;
    best.first = L::lowest(first);
    const V none = L::fill(infinity);
    const double index = L::lowest(L::where_equal(first, L::fill(best.first), where, none));
    best.index = index < infinity ? static_cast<std::ptrdiff_t>(index) : -1;
    best.second = L::lowest(L::min(second, L::where_equal(where, L::fill(index), none, first)));
    for (; j < n; ++j) {
        const double sum = x[j] + y[j];
        if (sum < best.first) {
            best.second = best.first;
            best.first = sum;
            best.index = static_cast<std::ptrdiff_t>(j);
        } else if (sum < best.second) {
            best.second = sum;
        }
    }
    return best;
}

template <class L>
void relax(const double* x, const double* y, double shift, double* distance, double* nearest, std::size_t n) {
    using V = typename L::Vector;
    const V by = L::fill(shift);
    for (std::size_t j = 0; j < n; ++nearest) {
        const std::size_t end = j + block_size < n ? j + block_size : n;
        V low = L::fill(infinity);
        for (; j + L::width <= end; j += L::width) {
            const V sum = L::add(L::add(L::load(x + j), L::load(y + j)), by);
            const V now = L::min(L::load(distance + j), sum);
            L::store(distance + j, now);
            low = L::min(low, now);
        }
        *nearest = L::lowest(low);
        for (; j < end; ++j) {
            const double sum = (x[j] + y[j]) + shift;
            if (sum < distance[j]) distance[j] = sum;
            if (distance[j] < *nearest) *nearest = distance[j];
        }
    }
}

template <class L>
std::size_t find(const double* x, double value, std::size_t from, std::size_t n) {
    const auto wanted = L::fill(value);
    std::size_t j = from;
    for (; j + L::width <= n; j += L::width)
        if (const unsigned mask = L::equal(L::load(x + j), wanted)) return j + low_bit(mask);
    for (; j < n; ++j)
        if (x[j] == value) return j;
    return n;
}

template <class L>
std::size_t find_sum(const double* x, const double* y, double value, std::size_t from, std::size_t n) {
    const auto wanted = L::fill(value);
    std::size_t j = from;
    for (; j + L::width <= n; j += L::width)
        if (const unsigned mask = L::equal(L::add(L::load(x + j), L::load(y + j)), wanted)) return j + low_bit(mask);
    for (; j < n; ++j)
        if (x[j] + y[j] == value) return j;
    return n;
}

template <class L>
std::size_t below(const double* x, double shift, const double* bound, std::int32_t* hits, std::size_t n) {
    const auto by = L::fill(shift);
    std::size_t count = 0, j = 0;
    // Hits are rare: four registers share one branch.
    for (; j + 4 * L::width <= n; j += 4 * L::width) {
        unsigned mask = 0;
        for (unsigned part = 0; part < 4; ++part) {
            const std::size_t at = j + part * L::width;
            mask |= L::less(L::add(L::load(x + at), by), L::load(bound + at)) << (part * L::width);
        }
        for (; mask; mask &= mask - 1) hits[count++] = static_cast<std::int32_t>(j + low_bit(mask));
    }
    for (; j < n; ++j)
        if (x[j] + shift < bound[j]) hits[count++] = static_cast<std::int32_t>(j);
    return count;
}

template <class L>
double minimum(const double* x, std::size_t n) {
    auto low = L::fill(infinity);
    std::size_t j = 0;
    for (; j + L::width <= n; j += L::width) low = L::min(low, L::load(x + j));
    double lowest = L::lowest(low);
    for (; j < n; ++j) lowest = x[j] < lowest ? x[j] : lowest;
    return lowest;
}

template <class L>
bool fold_minimum(const double* x, double* low, std::size_t n) {
    auto zero = L::fill(0.0);  // stays 0 unless an x is NaN, infinite, or so when scaled
    const auto scale = L::fill(0x1p13);
    std::size_t j = 0;
    for (; j + L::width <= n; j += L::width) {
        const auto v = L::load(x + j);
        const auto large = L::multiply(v, scale);
        zero = L::add(zero, L::subtract(large, large));
        L::store(low + j, L::min(v, L::load(low + j)));
    }
    bool finite = L::equal(zero, L::fill(0.0)) == (1u << L::width) - 1;
    for (; j < n; ++j) {
        finite &= x[j] * 0x1p13 - x[j] * 0x1p13 == 0.0;
        low[j] = x[j] < low[j] ? x[j] : low[j];
    }
    return finite;
}

template <class L>
constexpr Kernels table(const char* name) {
    return {name, best_two<L>, relax<L>, find<L>, find_sum<L>, below<L>, minimum<L>, fold_minimum<L>};
}

}  // namespace
}  // namespace spadeful
