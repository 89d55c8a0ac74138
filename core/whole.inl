// The kernels of whole numbers, over any register width; part of kernels.inl.
#include <cstring>
#include <utility>

#include "kernels.hpp"

namespace spadeful {
namespace {

template <class L>
struct Wholes {
    using Vector = typename L::Whole;
    static constexpr std::size_t bytes = sizeof(Vector), width = bytes / sizeof(std::int32_t);

    static Vector load(const std::int32_t* p) {
        Vector v;
        std::memcpy(&v, p, bytes);
        return v;
    }
    static void store(std::int32_t* p, Vector v) { std::memcpy(p, &v, bytes); }
    static Vector fill(std::int32_t x) { return Vector{} + x; }
    static Vector min(Vector a, Vector b) { return a < b ? a : b; }
    static Vector max(Vector a, Vector b) { return a > b ? a : b; }

    using Lanes = std::make_index_sequence<width>;
    template <std::size_t... I>
    static Vector count(std::index_sequence<I...>) {
        return Vector{static_cast<std::int32_t>(I)...};
    }

    // The lowest bits of 1.5 * 2^52 + x are those of x if it is whole and not too large; others are not what they came from.
    static bool read(const double* x, std::int32_t* out, std::int32_t& least, std::int32_t& most, std::size_t n) {
        double back[WholeSearch::columns];
        for (std::size_t j = 0; j < n; ++j) {
            const double sum = x[j] + 0x1.8p52;
            std::uint64_t bits;
            std::memcpy(&bits, &sum, sizeof bits);
            out[j] = static_cast<std::int32_t>(bits);
        }
        for (std::size_t j = 0; j < n; ++j) back[j] = out[j];
        std::int32_t low = least, high = most;
        for (std::size_t j = 0; j < n; ++j) {
            low = std::min(low, out[j]);
            high = std::max(high, out[j]);
        }
        least = low;
        most = high;
        std::size_t j = 0;
        for (; j + L::width <= n; j += L::width)
            if (L::equal(L::load(x + j), L::load(back + j)) != (1u << L::width) - 1) return false;
        return std::equal(x + j, x + n, back + j);
    }

    template <std::size_t panels>
    static void fold_panels(const std::int32_t* const* rows, std::size_t count, std::int32_t* low) {
        constexpr std::size_t registers = panels * panel_width / width;
        Vector lows[registers];
        for (std::size_t r = 0; r < registers; ++r) lows[r] = fill(WholeSearch::beyond);
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t r = 0; r < registers; ++r) lows[r] = min(lows[r], load(rows[i] + r * width));
        for (std::size_t r = 0; r < registers; ++r) store(low + r * width, lows[r]);
    }

    static void raise(WholeSearch& search, std::int32_t distance) {
        for (std::size_t j = 0; j < search.panels * panel_width; j += width) {
            const Vector by = max(fill(distance) - load(search.distance + j), Vector{});
            store(search.price + j, load(search.price + j) + by);
            store(search.pays + j, load(search.pays + j) + by);
        }
    }

    // All columns' distances are in registers, or as many of them as there are.
    template <std::size_t panels>
    static std::int32_t search_panels(WholeSearch& s) {
        constexpr std::size_t registers = panels * panel_width / width;
        const Vector beyond = fill(s.beyond), lanes = count(Lanes());
        Vector keys[registers];
        for (std::size_t r = 0; r < registers; ++r) {
            const Vector price = load(s.price + r * width);
            keys[r] = load(s.low + r * width) + price;
            store(s.open + r * width, price);
            store(s.distance + r * width, beyond);
            store(s.before + r * width, fill(-1));
        }
        for (;;) {
            Vector even = keys[0], odd = registers > 1 ? keys[1] : beyond;
            for (std::size_t r = 2; r < registers; ++r) (r % 2 ? odd : even) = min(r % 2 ? odd : even, keys[r]);
            const std::int32_t nearest = L::lowest(min(even, odd));
            const auto j = static_cast<std::size_t>(nearest) % s.columns;
            const std::int32_t* x = s.row[j];
            if (!x) return nearest;
            const std::int32_t distance = nearest - static_cast<std::int32_t>(j);
            s.distance[j] = distance;
            // A whole register: one number would be read back as part of it before it is there.
            std::int32_t* const open = s.open + j / width * width;
            store(open, lanes == fill(static_cast<std::int32_t>(j % width)) ? beyond : load(open));
            const Vector shift = fill(distance - s.pays[j]), from = fill(static_cast<std::int32_t>(j)), reached = fill(nearest);
            for (std::size_t r = 0; r < registers; ++r) {
                const std::size_t at = r * width;
                const Vector key = load(x + at) + shift + load(s.open + at);
                store(s.before + at, key < keys[r] ? from : load(s.before + at));
                keys[r] = min(keys[r] == reached ? beyond : keys[r], key);
            }
        }
    }

    using Panels = std::make_index_sequence<WholeSearch::columns / panel_width>;
    template <std::size_t... I>
    static std::int32_t search_any(WholeSearch& search, std::index_sequence<I...>) {
        static constexpr std::int32_t (*by_panels[])(WholeSearch&) = {search_panels<I + 1>...};
        return by_panels[search.panels - 1](search);
    }
    template <std::size_t... I>
    static void fold_any(const std::int32_t* const* rows, std::size_t count, std::int32_t* low, std::size_t panels,
                         std::index_sequence<I...>) {
        static constexpr void (*by_panels[])(const std::int32_t* const*, std::size_t, std::int32_t*) = {fold_panels<I + 1>...};
        by_panels[panels - 1](rows, count, low);
    }
    static std::int32_t search(WholeSearch& s) { return search_any(s, Panels()); }
    static void fold(const std::int32_t* const* rows, std::size_t count, std::int32_t* low, std::size_t panels) {
        fold_any(rows, count, low, panels, Panels());
    }
};

}  // namespace
}  // namespace spadeful
