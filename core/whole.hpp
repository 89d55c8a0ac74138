// The mass path of a small square problem whose costs are whole numbers, as those of colours of eight bits are.
//
// A matching grows by one shortest augmenting path after the other, from all unmatched rows at once to the nearest free
// column, and is optimal for each of its sizes. Whole numbers are added without rounding, so narrow ones do: a distance
// and the column that it leads to are one number of 32 bits, of which the least is the nearest column, the first of those
// that are tied. All that a search compares stays in registers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.hpp"
#include "watch.hpp"

namespace spadeful {

class WholePath {
public:
    // cost: n x n, row after row. False if there are too many, or if they are not whole or too far apart.
    bool start(const double* cost, std::size_t n);
    // The optimal matching of a size, which is at most one below the largest so far.
    void resize(std::size_t size, Watch& watch);
    void grow(Watch& watch) { resize(size_ + 1, watch); }

    // The column of a row, or -1 if it has none.
    std::int32_t column_of(std::size_t row) const { return (size_ == found_ ? columns_ : columns_before_)[row]; }
    // What the last pair cost, and what each column adds to it (>= 0, and 0 for an unmatched column).
    double price(double* column_prices) const;

private:
    void augment();
    void fold_group(std::size_t group);
    std::size_t flip_path(std::size_t column);
    std::size_t root_of(std::size_t column) const;
    const std::int32_t* row(std::size_t i) const { return cost_.data() + i * stride_; }

    std::size_t n_ = 0, stride_ = 0;
    std::size_t size_ = 0, found_ = 0;  // of the matching that is told of, and of the largest one so far
    double least_ = 0;                  // of the costs, which is taken off all of them
    std::int32_t price_ = 0;
    const Kernels* kernels_ = nullptr;
    std::vector<std::int32_t> cost_, row_of_column_;
    std::vector<std::int32_t> columns_, columns_before_;  // of the rows, in the largest matching and in the one before
    std::vector<std::int32_t> lows_;                      // of the unmatched rows of each group
    std::vector<const std::int32_t*> low_of_group_, roots_;
    WholeSearch search_;
};

}  // namespace spadeful
