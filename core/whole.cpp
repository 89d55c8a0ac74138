#include "whole.hpp"

#include <algorithm>
#include <limits>

namespace spadeful {

namespace {
constexpr std::int32_t scale = WholeSearch::columns;
// How far costs may be apart. An unmatched row has every free column for its cost, so that no distance is beyond the
// largest cost, and no price: two of them and `beyond` can be added.
constexpr std::int64_t widest = 1 << 21;
// Rows whose least costs are kept, for few to be looked at when one of them is matched.
constexpr std::size_t group_size = 8;
}  // namespace

bool WholePath::start(const double* cost, std::size_t n) {
    if (n > WholeSearch::columns) return false;
    kernels_ = &kernels();
    n_ = n;
    search_.panels = (n + panel_width - 1) / panel_width;
    stride_ = search_.panels * panel_width;
    cost_.resize(n * stride_);
    std::int32_t least = std::numeric_limits<std::int32_t>::max(), most = std::numeric_limits<std::int32_t>::min();
    for (std::size_t i = 0; i < n; ++i)
        if (!kernels_->read_whole(cost + i * n, &cost_[i * stride_], least, most, n)) return false;
    if (std::int64_t{most} - least > widest) return false;
    for (std::size_t i = 0; i < n; ++i) {
        std::int32_t* c = &cost_[i * stride_];
        for (std::size_t j = 0; j < n; ++j) c[j] = (c[j] - least) * scale + static_cast<std::int32_t>(j);
        std::fill(c + n, c + stride_, WholeSearch::beyond);
    }
    least_ = least;
    size_ = found_ = 0;
    price_ = 0;
    std::fill_n(search_.price, stride_, 0);
    std::fill_n(search_.pays, stride_, 0);
    std::fill_n(search_.row, stride_, nullptr);
    row_of_column_.assign(n, -1);
    columns_.assign(n, -1);
    const std::size_t groups = (n + group_size - 1) / group_size;
    lows_.resize(groups * stride_);
    low_of_group_.resize(groups);
    for (std::size_t g = 0; g < groups; ++g) {
        low_of_group_[g] = &lows_[g * stride_];
        fold_group(g);
    }
    return true;
}

void WholePath::resize(std::size_t size, Watch& watch) {
    while (found_ < size) {
        watch.tick();
        augment();
    }
    size_ = size;
}

void WholePath::augment() {
    kernels_->fold_whole(low_of_group_.data(), low_of_group_.size(), search_.low, search_.panels);
    const std::int32_t nearest = kernels_->search_whole(search_);
    price_ = nearest / scale * scale;
    kernels_->raise_whole(search_, price_);
    columns_before_ = columns_;
    const std::size_t root = flip_path(static_cast<std::size_t>(nearest % scale));
    ++found_;
    fold_group(root / group_size);
}

void WholePath::fold_group(std::size_t group) {
    roots_.clear();
    for (std::size_t i = group * group_size; i < std::min(n_, (group + 1) * group_size); ++i)
        if (columns_[i] < 0) roots_.push_back(row(i));
    kernels_->fold_whole(roots_.data(), roots_.size(), &lows_[group * stride_], search_.panels);
}

// The first unmatched row from which a column was reached.
std::size_t WholePath::root_of(std::size_t column) const {
    const std::int32_t low = search_.low[column];
    std::size_t group = 0;
    while (low_of_group_[group][column] != low) ++group;
    std::size_t i = group * group_size;
    while (columns_[i] >= 0 || row(i)[column] != low) ++i;
    return i;
}

// Walks back from a column; each row on the way gets the column that was reached from its own. Returns where it began.
std::size_t WholePath::flip_path(std::size_t column) {
    for (;;) {
        const std::int32_t before = search_.before[column];
        const std::size_t i = before < 0 ? root_of(column) : static_cast<std::size_t>(row_of_column_[before]);
        row_of_column_[column] = static_cast<std::int32_t>(i);
        columns_[i] = static_cast<std::int32_t>(column);
        search_.row[column] = row(i);
        search_.pays[column] = row(i)[column] / scale * scale + search_.price[column];
        if (before < 0) return i;
        column = static_cast<std::size_t>(before);
    }
}

double WholePath::price(double* column_prices) const {
    for (std::size_t j = 0; j < n_; ++j) column_prices[j] = search_.price[j] / scale;
    return least_ + price_ / scale;
}

}  // namespace spadeful
