#include "distances.hpp"

#include <cmath>

namespace spadeful {

// Copies the points; those of length 0 have no direction, which is marked.
bool Distances::gather(const Points& points, const std::int64_t* which, std::size_t count, bool normalise,
                       std::vector<double>& out, std::vector<double>& zero) {
    const std::size_t d = points.dimension;
    bool good = true;
    out.resize(count * d);
    zero.assign(count, 0.0);
    for (std::size_t i = 0; i < count; ++i) {
        double* point = out.data() + i * d;
        double length = 0;
        for (std::size_t t = 0; t < d; ++t) {
            point[t] = points.at(which[i], t);
            good &= std::abs(point[t]) <= 1e150;
            length += point[t] * point[t];
        }
        if (!normalise) continue;
        zero[i] = length > 0 ? 0.0 : 1.0;
        const double scale = length > 0 ? 1 / std::sqrt(length) : 0.0;
        for (std::size_t t = 0; t < d; ++t) point[t] *= scale;
    }
    return good;
}

bool Distances::measure(const Points& x, const std::int64_t* rows, std::size_t m, const Points& y,
                        const std::int64_t* columns, std::size_t n, Metric metric, double* cost) {
    const std::size_t d = x.dimension;
    const bool cosine = metric == Metric::cosine;
    bool good = gather(x, rows, m, cosine, x_, x_zero_);
    good &= gather(y, columns, n, cosine, y_, y_zero_);
    panels_.assign((n + panel_width - 1) / panel_width * panel_width * d, 0.0);
    for (std::size_t j = 0; j < n; ++j)
        for (std::size_t t = 0; t < d; ++t)
            panels_[(j / panel_width * d + t) * panel_width + j % panel_width] = y_[j * d + t];
    for (std::size_t i = 0; i < m; ++i) {
        double* row = cost + i * n;
        kernels().squared_distances(x_.data() + i * d, panels_.data(), row, d, n);
        if (metric == Metric::euclidean)
            for (std::size_t j = 0; j < n; ++j) row[j] = std::sqrt(row[j]);
        else if (cosine)  // of directions: half the squared distance; 1 from a point without any
            for (std::size_t j = 0; j < n; ++j) row[j] = (row[j] + x_zero_[i] + y_zero_[j]) / 2;
    }
    return good;
}

}  // namespace spadeful
