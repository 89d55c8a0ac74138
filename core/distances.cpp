#include "distances.hpp"

#include <algorithm>
#include <cmath>

namespace spadeful {

// Copies the points; those of length 0 have no direction, which is marked.
bool Distances::gather(const Points& points, const std::int64_t* which, std::size_t count, bool normalise,
                       std::vector<double>& out, std::vector<double>& zero) {
    const std::size_t d = points.dimension;
    bool good = true;
    out.resize(count * d);
    zero.assign(count, 0.0);
    const std::size_t ahead = std::min<std::size_t>(std::max<std::size_t>((1 << 16) / (8 * d), 4), 256);  // 64 kB of them
    for (std::size_t i = 0; i < std::min(ahead, count); ++i) points.fetch(which[i]);
    for (std::size_t i = 0; i < count; ++i) {
        if (i + ahead < count) points.fetch(which[i + ahead]);
        double* point = out.data() + i * d;
        double largest = 0, length = 0;
        points.read(which[i], point);
        for (std::size_t t = 0; t < d; ++t) {
            good &= std::abs(point[t]) <= 1e150;
            largest = std::max(largest, std::abs(point[t]));
        }
        if (!normalise) continue;
        zero[i] = largest > 0 ? 0.0 : 1.0;
        if (!(largest > 0)) continue;
        for (std::size_t t = 0; t < d; ++t) {
            point[t] /= largest;  // squares of tiny numbers vanish
            length += point[t] * point[t];
        }
        for (std::size_t t = 0; t < d; ++t) point[t] /= std::sqrt(length);
    }
    return good;
}

bool Distances::measure(const Points& x, const std::int64_t* rows, std::size_t m, const Points& y,
                        const std::int64_t* columns, std::size_t n, Metric metric, double* cost,
                        const std::int64_t* next_rows, const std::int64_t* next_columns) {
    const std::size_t d = x.dimension;
    const bool cosine = metric == Metric::cosine;
    bool good = gather(x, rows, m, cosine, x_, x_zero_);
    good &= gather(y, columns, n, cosine, y_, y_zero_);
    // A few coordinates of all points at a time: they stay in the cache while every x is measured from them.
    constexpr std::size_t most = 64;
    for (std::size_t start = 0; start < d; start += most) {
        const std::size_t count = std::min(most, d - start);
        panels_.resize((n + panel_width - 1) / panel_width * panel_width * count);
        for (std::size_t j = 0; j < n; j += panel_width) {
            double* panel = panels_.data() + j * count;
            const std::size_t points = std::min(panel_width, n - j);
            for (std::size_t c = 0; c < panel_width; ++c) {
                const double* point = y_.data() + (j + std::min(c, points - 1)) * d + start;  // padded with the last
                for (std::size_t t = 0; t < count; ++t) panel[t * panel_width + c] = point[t];
            }
        }
        for (std::size_t i = 0; i < m; i += 2) {
            const std::size_t end = std::min(i + 2, m);
            kernels().squared_distances(x_.data() + i * d + start, d, end - i, panels_.data(), start > 0, cost + i * n,
                                        count, n);
            if (!next_rows || start > 0) continue;
            for (std::size_t r = i; r < end; ++r) x.fetch(next_rows[r]);
            for (std::size_t c = i * n / m; c < end * n / m; ++c) y.fetch(next_columns[c]);
        }
    }
    for (std::size_t i = 0; i < m; ++i) {
        double* row = cost + i * n;
        if (metric == Metric::euclidean)
            for (std::size_t j = 0; j < n; ++j) row[j] = std::sqrt(row[j]);
        else if (cosine)  // of directions: half the squared distance; 1 from a point without any
            for (std::size_t j = 0; j < n; ++j) row[j] = (row[j] + x_zero_[i] + y_zero_[j]) / 2;
    }
    return good;
}

}  // namespace spadeful
