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

    // Copies a point, converted.
    void read(std::int64_t row, double* out) const {
        if (is_float)
            copy(static_cast<const float*>(data) + row * row_stride, out);
        else
            copy(static_cast<const double*>(data) + row * row_stride, out);
    }

    // Asks for a point that is read soon: points of a batch lie anywhere in memory.
    void fetch(std::int64_t row) const {
        const std::size_t size = is_float ? sizeof(float) : sizeof(double), line = 64;
        const char* start = static_cast<const char*>(data) + row * row_stride * static_cast<std::int64_t>(size);
        if (column_stride != 1) return;
        for (std::size_t at = 0; at < dimension * size; at += line) __builtin_prefetch(start + at);
    }

private:
    template <class T>
    void copy(const T* point, double* out) const {
        if (column_stride == 1)
            for (std::size_t t = 0; t < dimension; ++t) out[t] = static_cast<double>(point[t]);
        else
            for (std::size_t t = 0; t < dimension; ++t)
                out[t] = static_cast<double>(point[static_cast<std::int64_t>(t) * column_stride]);
    }
};

class Distances {
public:
    // cost: m x n. False if a point that is used holds something not finite, or beyond 1e150. The points that are
    // measured next, if they are known, come into the cache meanwhile.
    bool measure(const Points& x, const std::int64_t* rows, std::size_t m, const Points& y, const std::int64_t* columns,
                 std::size_t n, Metric metric, double* cost, const std::int64_t* next_rows = nullptr,
                 const std::int64_t* next_columns = nullptr);

private:
    bool gather(const Points& points, const std::int64_t* which, std::size_t count, bool normalise,
                std::vector<double>& out, std::vector<double>& zero);

    std::vector<double> x_, y_, panels_, x_zero_, y_zero_;
};

}  // namespace spadeful
