// Ground costs between mini-batches of points.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.hpp"

namespace spadeful {

enum class Metric { squared_euclidean, euclidean, cosine };

// Points as they lie in memory, row by row with any strides, of single or double precision.
struct Points {
    const void* data;
    bool is_float;
    std::size_t dimension;
    std::int64_t row_stride, column_stride;

    double at(std::int64_t row, std::size_t column) const {
        const std::int64_t where = row * row_stride + static_cast<std::int64_t>(column) * column_stride;
        return is_float ? static_cast<double>(static_cast<const float*>(data)[where])
                        : static_cast<const double*>(data)[where];
    }
};

class Distances {
public:
    // cost: m x n. False if a point that is used holds something not finite, or beyond 1e150.
    bool measure(const Points& x, const std::int64_t* rows, std::size_t m, const Points& y, const std::int64_t* columns,
                 std::size_t n, Metric metric, double* cost);

private:
    bool gather(const Points& points, const std::int64_t* which, std::size_t count, bool normalise,
                std::vector<double>& out, std::vector<double>& zero);

    std::vector<double> x_, y_, panels_, x_zero_, y_zero_;
};

}  // namespace spadeful
