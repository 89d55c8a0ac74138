#pragma once
#include <algorithm>
#include <cstddef>

namespace spadeful {

// Square tiles keep both sides in the first-level cache.
inline void transpose(const double* from, double* to, std::size_t m, std::size_t n) {
    constexpr std::size_t tile = 16;
    for (std::size_t i0 = 0; i0 < m; i0 += tile)
        for (std::size_t j0 = 0; j0 < n; j0 += tile)
            for (std::size_t j = j0; j < std::min(n, j0 + tile); ++j)
                for (std::size_t i = i0; i < std::min(m, i0 + tile); ++i) to[j * m + i] = from[i * n + j];
}

}  // namespace spadeful
