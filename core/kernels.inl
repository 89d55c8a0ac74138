// The kernels' bodies, over any register width; included by one file per instruction set.
#include <algorithm>

#include "kernels.hpp"
#include "lanes.hpp"
#include "whole.inl"

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

// Two registers side by side, so that neither waits for the other's positions. The nearest is told if there are no more rows.
template <class L, std::size_t Rows, bool last>
Nearest relax_rows(const CostRow* rows, const double* y, double mark, double* keys, double* marks, std::size_t n) {
    using V = typename L::Vector;
    struct Lanes {
        V low, where, here;
    };
    constexpr double width = static_cast<double>(L::width);
    const V marked = L::fill(mark), step = L::fill(2 * width), none = L::fill(infinity);
    Lanes even{none, none, L::iota()}, odd{none, none, L::add(L::iota(), L::fill(width))};
    const double* x[Rows];
    V by[Rows];
    for (std::size_t r = 0; r < Rows; ++r) {
        x[r] = rows[r].x;
        by[r] = L::fill(rows[r].shift);
    }
    const auto take = [&](Lanes& lanes, std::size_t j) {
        V key = L::add(L::load(x[0] + j), by[0]);
        for (std::size_t r = 1; r < Rows; ++r) key = L::min(key, L::add(L::load(x[r] + j), by[r]));
        const V before = L::load(keys + j);
        L::store(marks + j, L::where_less(key, before, marked, L::load(marks + j)));
        key = L::min(key, before);
        L::store(keys + j, key);
        if (!last) return;
        const V now = L::add(key, L::load(y + j));
        lanes.where = L::where_less(now, lanes.low, lanes.here, lanes.where);
        lanes.low = L::min(lanes.low, now);
        lanes.here = L::add(lanes.here, step);
    };
    std::size_t j = 0;
    for (; j + 2 * L::width <= n; j += 2 * L::width) {
        take(even, j);
        take(odd, j + L::width);
    }
    if (j + L::width <= n) {
        take(even, j);
        j += L::width;
    }
    Nearest nearest{L::lowest(L::min(even.low, odd.low)), -1};
    const V low = L::fill(nearest.distance);
    const auto place = [&](const Lanes& lanes) { return L::where_equal(lanes.low, low, lanes.where, none); };
    const double index = L::lowest(L::min(place(even), place(odd)));
    if (index < infinity) nearest.index = static_cast<std::ptrdiff_t>(index);
    for (; j < n; ++j) {
        for (std::size_t r = 0; r < Rows; ++r)
            if (const double key = rows[r].x[j] + rows[r].shift; key < keys[j]) {
                keys[j] = key;
                marks[j] = mark;
            }
        if (keys[j] + y[j] < nearest.distance) nearest = {keys[j] + y[j], static_cast<std::ptrdiff_t>(j)};
    }
    return nearest;
}

template <class L>
Nearest relax(const CostRow* rows, std::size_t count, const double* y, double mark, double* keys, double* marks,
              std::size_t n) {
    for (; count > relaxed_rows; count -= relaxed_rows, rows += relaxed_rows, mark += relaxed_rows)
        relax_rows<L, relaxed_rows, false>(rows, y, mark, keys, marks, n);
    if (count == 1) return relax_rows<L, 1, true>(rows, y, mark, keys, marks, n);
    if (count == 2) return relax_rows<L, 2, true>(rows, y, mark, keys, marks, n);
    if (count == 3) return relax_rows<L, 3, true>(rows, y, mark, keys, marks, n);
    static_assert(relaxed_rows == 4);
    return relax_rows<L, 4, true>(rows, y, mark, keys, marks, n);
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
void outbid(const double* x, double gives, double* price, std::size_t n) {
    const auto most = L::fill(gives);
    std::size_t j = 0;
    for (; j + L::width <= n; j += L::width)
        L::store(price + j, L::max(L::load(price + j), L::subtract(most, L::load(x + j))));
    for (; j < n; ++j) price[j] = std::max(price[j], gives - x[j]);
}

// Range reduction by multiples of log 2 (in two parts), then the Taylor polynomial, exact to rounding for
// |r| <= log(2) / 2, its terms paired so that they need not wait for each other.
template <class L>
typename L::Vector exponential(typename L::Vector x) {
    using V = typename L::Vector;
    const V magic = L::fill(0x1.8p52), inside = L::min(x, L::fill(709.0));
    const V shifted = L::fused(inside, L::fill(0x1.71547652b82fep+0), magic);
    const V count = L::subtract(shifted, magic);
    V r = L::fused(count, L::fill(-0x1.62e42fefa39efp-1), inside);
    r = L::fused(count, L::fill(-0x1.abc9e3b39803fp-56), r);
    const auto pair = [&](double low, double high) { return L::fused(L::fill(high), r, L::fill(low)); };
    const V r2 = L::multiply(r, r), r4 = L::multiply(r2, r2), r8 = L::multiply(r4, r4);
    const V first = L::fused(pair(1.0 / 2, 1.0 / 6), r2, pair(1.0, 1.0));
    const V second = L::fused(pair(1.0 / 720, 1.0 / 5040), r2, pair(1.0 / 24, 1.0 / 120));
    V third = L::fused(pair(1.0 / 3628800, 1.0 / 39916800), r2, pair(1.0 / 40320, 1.0 / 362880));
    third = L::fused(L::fill(1.0 / 479001600), r4, third);
    const V sum = L::fused(third, r8, L::fused(second, r4, first));
    return L::where_less(x, L::fill(-707.0), L::fill(0.0), L::multiply(sum, L::power_of_two(shifted)));
}

template <class L>
void exponentials(const double* x, double scale, const double* y, double shift, double* out, std::size_t n) {
    const auto by = L::fill(shift), times = L::fill(scale);
    std::size_t j = 0;
    for (; j + L::width <= n; j += L::width)
        L::store(out + j, exponential<L>(L::add(L::fused(L::load(x + j), times, L::load(y + j)), by)));
    for (; j < n; ++j) out[j] = exponential<Scalar>(Scalar::fused(x[j], scale, y[j]) + shift);
}

// Terms are dealt out to eight partial sums at every width, so that the result is the same.
template <class L>
void dots(const double* x, const double* y, double* out, std::size_t n) {
    constexpr std::size_t parts = 8, registers = parts / L::width;
    typename L::Vector sums[row_group][registers];
    for (auto& row : sums)
        for (auto& sum : row) sum = L::fill(0.0);
    std::size_t j = 0;
    for (; j + parts <= n; j += parts)
        for (std::size_t p = 0; p < registers; ++p) {
            const auto factor = L::load(y + j + p * L::width);
            for (std::size_t r = 0; r < row_group; ++r)
                sums[r][p] = L::fused(L::load(x + r * n + j + p * L::width), factor, sums[r][p]);
        }
    for (std::size_t r = 0; r < row_group; ++r) {
        double each[parts];
        for (std::size_t p = 0; p < registers; ++p) L::store(each + p * L::width, sums[r][p]);
        for (std::size_t rest = j; rest < n; ++rest) each[rest - j] = Scalar::fused(x[r * n + rest], y[rest], each[rest - j]);
        out[r] = ((each[0] + each[4]) + (each[2] + each[6])) + ((each[1] + each[5]) + (each[3] + each[7]));
    }
}

template <class L>
void add_rows(const double* x, const double* scale, double* sums, std::size_t n) {
    static_assert(row_group == 4);
    const auto s0 = L::fill(scale[0]), s1 = L::fill(scale[1]), s2 = L::fill(scale[2]), s3 = L::fill(scale[3]);
    const double *x1 = x + n, *x2 = x1 + n, *x3 = x2 + n;
    std::size_t j = 0;
    for (; j + L::width <= n; j += L::width) {
        auto sum = L::fused(L::load(x + j), s0, L::load(sums + j));
        sum = L::fused(L::load(x1 + j), s1, sum);
        sum = L::fused(L::load(x2 + j), s2, sum);
        L::store(sums + j, L::fused(L::load(x3 + j), s3, sum));
    }
    for (; j < n; ++j)
        for (std::size_t r = 0; r < row_group; ++r) sums[j] = Scalar::fused(x[r * n + j], scale[r], sums[j]);
}

// Two registers of each row of the group: enough sums side by side for none to wait for its last addition.
template <class L>
void combine(const double* x, const double* by, std::size_t count, double* out, std::size_t stride, std::size_t n) {
    static_assert(panel_width % (2 * L::width) == 0);
    for (std::size_t j = 0; j < n; j += 2 * L::width) {
        typename L::Vector sums[row_group][2];
        for (std::size_t r = 0; r < row_group; ++r)
            for (std::size_t p = 0; p < 2; ++p) sums[r][p] = L::load(out + r * stride + j + p * L::width);
        for (std::size_t t = 0; t < count; ++t) {
            const double* row = x + t * stride + j;
            const auto first = L::load(row), second = L::load(row + L::width);
            for (std::size_t r = 0; r < row_group; ++r) {
                const auto times = L::fill(by[t * row_group + r]);
                sums[r][0] = L::fused(first, times, sums[r][0]);
                sums[r][1] = L::fused(second, times, sums[r][1]);
            }
        }
        for (std::size_t r = 0; r < row_group; ++r)
            for (std::size_t p = 0; p < 2; ++p) L::store(out + r * stride + j + p * L::width, sums[r][p]);
    }
}

// Two rows at a time: enough sums side by side for none to wait for its last addition.
template <class L, std::size_t Rows>
void measure_rows(const double* x, std::size_t stride, const double* panels, bool add, double* out, std::size_t d,
                  std::size_t n) {
    constexpr std::size_t registers = panel_width / L::width;
    for (std::size_t j = 0; j < n; j += panel_width) {
        double padded[Rows * panel_width];
        const bool whole = j + panel_width <= n;
        double* sums_at = out + j;
        std::size_t apart = n;
        if (!whole) {
            for (std::size_t r = 0; add && r < Rows; ++r) std::copy(out + r * n + j, out + r * n + n, padded + r * panel_width);
            sums_at = padded;
            apart = panel_width;
        }
        typename L::Vector sums[Rows][registers];
        for (std::size_t r = 0; r < Rows; ++r)
            for (std::size_t p = 0; p < registers; ++p)
                sums[r][p] = add ? L::load(sums_at + r * apart + p * L::width) : L::fill(0.0);
        for (std::size_t t = 0; t < d; ++t, panels += panel_width) {
            typename L::Vector here[Rows];
            for (std::size_t r = 0; r < Rows; ++r) here[r] = L::fill(x[r * stride + t]);
            for (std::size_t p = 0; p < registers; ++p) {
                const auto there = L::load(panels + p * L::width);
                for (std::size_t r = 0; r < Rows; ++r) {
                    const auto step = L::subtract(there, here[r]);
                    sums[r][p] = L::fused(step, step, sums[r][p]);
                }
            }
        }
        for (std::size_t r = 0; r < Rows; ++r)
            for (std::size_t p = 0; p < registers; ++p) L::store(sums_at + r * apart + p * L::width, sums[r][p]);
        if (!whole)
            for (std::size_t r = 0; r < Rows; ++r)
                std::copy_n(padded + r * panel_width, n - j, out + r * n + j);
    }
}

template <class L>
void squared_distances(const double* x, std::size_t stride, std::size_t rows, const double* panels, bool add,
                       double* out, std::size_t d, std::size_t n) {
    if (rows == 2)
        measure_rows<L, 2>(x, stride, panels, add, out, d, n);
    else
        measure_rows<L, 1>(x, stride, panels, add, out, d, n);
}

template <class L>
constexpr Kernels table(const char* name) {
    using W = Wholes<L>;
    return {name, best_two<L>, relax<L>, find<L>, find_sum<L>, below<L>, minimum<L>, fold_minimum<L>,
            outbid<L>, exponentials<L>, dots<L>, add_rows<L>, combine<L>, squared_distances<L>,
            W::read, W::fold, W::search, W::raise};
}

}  // namespace
}  // namespace spadeful
