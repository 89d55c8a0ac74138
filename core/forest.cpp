#include "forest.hpp"

#include <algorithm>
#include <utility>

#include "transpose.hpp"

namespace spadeful {

void Flows::reset(std::size_t rows, std::size_t columns) {
    row_.assign(rows, -1);
    column_.assign(columns, -1);
    unused_.clear();
    pool_.clear();
}

void Flows::add(std::int32_t row, std::int32_t column, std::int64_t units) {
    std::int32_t* in_column = &column_[static_cast<std::size_t>(column)];
    while (*in_column >= 0 && at(*in_column).row != row) in_column = &at(*in_column).next_in_column;
    const std::int32_t found = *in_column;
    if (found >= 0) {
        at(found).units += units;
        if (at(found).units > 0) return;
        std::int32_t* in_row = &row_[static_cast<std::size_t>(row)];
        while (*in_row != found) in_row = &at(*in_row).next_in_row;
        *in_row = at(found).next_in_row;
        *in_column = at(found).next_in_column;
        unused_.push_back(found);
        return;
    }
    auto fresh = static_cast<std::int32_t>(pool_.size());
    if (unused_.empty()) {
        pool_.emplace_back();
    } else {
        fresh = unused_.back();
        unused_.pop_back();
    }
    std::int32_t& first_in_row = row_[static_cast<std::size_t>(row)];
    std::int32_t& first_in_column = column_[static_cast<std::size_t>(column)];
    at(fresh) = {row, column, first_in_row, first_in_column, units};
    first_in_row = first_in_column = fresh;
}

std::int64_t Flows::units(std::int32_t row, std::int32_t column) const {
    for (std::int32_t k = first_in_column(static_cast<std::size_t>(column)); k >= 0; k = link(k).next_in_column)
        if (link(k).row == row) return link(k).units;
    return 0;
}

std::vector<Flow> Flows::list() const {
    std::vector<Flow> flows;
    for (std::size_t i = 0; i < row_.size(); ++i) {
        const auto start = static_cast<std::ptrdiff_t>(flows.size());
        for (std::int32_t k = row_[i]; k >= 0; k = link(k).next_in_row)
            flows.push_back({link(k).row, link(k).column, link(k).units});
        std::sort(flows.begin() + start, flows.end(), [](const Flow& x, const Flow& y) { return x.column < y.column; });
    }
    return flows;
}

void Forest::Queue::reset(std::size_t n) {
    n_ = n;
    key_.assign(blocks(n) * block_size, infinity);
    block_.assign(blocks(n), infinity);
}

void Forest::Queue::lower(std::size_t j, double key) {
    key_[j] = key;
    double& least = block_[j / block_size];
    if (key < least) least = key;
}

void Forest::Queue::set(std::size_t j, double key) {
    const double before = key_[j];
    key_[j] = key;
    double& least = block_[j / block_size];
    if (key < least)
        least = key;
    else if (before == least)
        least = kernels().minimum(key_.data() + j / block_size * block_size, block_size);
}

// Adding zero takes the sign off a zero, which would tell the width of the registers.
double Forest::Queue::smallest() const { return kernels().minimum(block_.data(), block_.size()) + 0.0; }

std::size_t Forest::Queue::find(double key) const {
    const std::size_t start = kernels().find(block_.data(), key, 0, block_.size()) * block_size;
    return kernels().find(key_.data(), key, start, start + block_size);
}

void Forest::start(const double* cost, std::size_t m, std::size_t n, const std::vector<std::int64_t>& supply,
                   const std::vector<std::int64_t>& demand) {
    supply_ = supply;
    demand_ = demand;
    cost_ = cost;
    m_ = m;
    n_ = n;
    kernels_ = &kernels();
    lambda_ = -infinity;
    sent_ = 0;
    segments.clear();
    links.clear();
    transposed_.resize(m * n);
    transpose(cost, transposed_.data(), m, n);
    flows_.reset(m, n);
    open_.reset(n);
    full_.reset(n);
    reach_.assign(n, infinity);
    beta_.assign(n, 0.0);
    nearest_.assign(n, -1);
    offset_.assign(m, infinity);
    p_.assign(m, 0.0);
    root_.assign(m, -1);
    entry_.assign(m, -1);
    first_row_.assign(m, -1);
    first_column_.assign(m, -1);
    next_row_.assign(m, -1);
    next_column_.assign(n, -1);
    hits_.resize(n);
    for (std::size_t i = 0; i < m; ++i) {
        if (supply_[i] == 0) continue;
        offset_[i] = 0;
        root_[i] = static_cast<std::int32_t>(i);
    }
    for (std::size_t j = 0; j < n; ++j) refresh(j);
}

void Forest::key(std::size_t j, double value) { (demand_[j] > 0 ? open_ : full_).set(j, value); }

// Makes the key of a column outside the forest exact. False if it already was.
bool Forest::refresh(std::size_t j) {
    const std::int32_t i = nearest_[j];
    if (i >= 0 && transposed_[j * m_ + static_cast<std::size_t>(i)] + offset_[static_cast<std::size_t>(i)] == reach_[j])
        return false;
    const BestTwo best = kernels_->best_two(transposed_.data() + j * m_, offset_.data(), m_);
    reach_[j] = best.first;
    nearest_[j] = static_cast<std::int32_t>(best.index);
    key(j, best.first + beta_[j]);
    return true;
}

void Forest::scan(std::size_t i) {
    const double offset = offset_[i];
    const std::size_t count = kernels_->below(cost_ + i * n_, offset, reach_.data(), hits_.data(), n_);
    for (std::size_t k = 0; k < count; ++k) {
        const auto j = static_cast<std::size_t>(hits_[k]);
        if (is_inside(j)) continue;  // only rounding brought it here
        reach_[j] = cost_[i * n_ + j] + offset;
        nearest_[j] = static_cast<std::int32_t>(i);
        (demand_[j] > 0 ? open_ : full_).lower(j, reach_[j] + beta_[j]);
    }
}

// A column without room joins the forest, and behind it the rows that feed it.
void Forest::join(std::size_t j) {
    full_.set(j, infinity);
    const std::int32_t root = root_[static_cast<std::size_t>(nearest_[j])];
    next_column_[j] = std::exchange(first_column_[static_cast<std::size_t>(root)], static_cast<std::int32_t>(j));
    for (std::int32_t k = flows_.first_in_column(j); k >= 0; k = flows_.link(k).next_in_column) {
        const auto i = static_cast<std::size_t>(flows_.link(k).row);
        if (offset_[i] < infinity) continue;
        offset_[i] = lambda_ - p_[i];
        root_[i] = root;
        entry_[i] = static_cast<std::int32_t>(j);
        next_row_[i] = std::exchange(first_row_[static_cast<std::size_t>(root)], static_cast<std::int32_t>(i));
        scan(i);
    }
}

// Sends what fits along the path from the root to column j, which has room.
void Forest::send(std::size_t j, std::int64_t target, bool keep_path) {
    const auto end = static_cast<std::int32_t>(j);
    std::int64_t units = std::min(target - sent_, demand_[j]);
    std::int32_t i = nearest_[j];
    for (std::int32_t up; (up = entry_[static_cast<std::size_t>(i)]) >= 0; i = nearest_[static_cast<std::size_t>(up)])
        units = std::min(units, flows_.units(i, up));
    const auto root = static_cast<std::size_t>(i);
    units = std::min(units, supply_[root]);

    double cost = 0;
    const auto first = static_cast<std::int32_t>(links.size());
    const auto step = [&](std::int32_t row, std::int32_t column, std::int64_t by) {
        flows_.add(row, column, by);
        const double c = cost_[static_cast<std::size_t>(row) * n_ + static_cast<std::size_t>(column)];
        cost += by > 0 ? c : -c;
        if (keep_path) links.push_back({row, column});
    };
    std::int32_t column = end;
    for (i = nearest_[j];; i = nearest_[static_cast<std::size_t>(column)]) {
        step(i, column, units);
        column = entry_[static_cast<std::size_t>(i)];
        if (column < 0) break;
        step(i, column, -units);
    }
    sent_ += units;
    supply_[root] -= units;
    demand_[j] -= units;
    if (keep_path)
        segments.push_back({lambda_, cost, units, first, static_cast<std::int32_t>(links.size()) - first});
    if (demand_[j] == 0) {
        open_.set(j, infinity);
        full_.set(j, lambda_);
    }
    nearest_[j] = -1;
    fell(root);
}

// Whether a column is in the forest: full, not waiting in the queue, and reached from somewhere.
bool Forest::is_inside(std::size_t j) const { return demand_[j] == 0 && full_[j] == infinity && nearest_[j] >= 0; }

// A row of a felled tree that feeds a column of a standing one stays, behind that column, as it is.
bool Forest::take_over(std::size_t i) {
    for (std::int32_t k = flows_.first_in_row(i); k >= 0; k = flows_.link(k).next_in_row) {
        const std::int32_t column = flows_.link(k).column;
        if (!is_inside(static_cast<std::size_t>(column))) continue;
        const std::int32_t other = root_[static_cast<std::size_t>(nearest_[static_cast<std::size_t>(column)])];
        entry_[i] = column;
        root_[i] = other;
        next_row_[i] = std::exchange(first_row_[static_cast<std::size_t>(other)], static_cast<std::int32_t>(i));
        return true;
    }
    return false;
}

// The tree of a root leaves the forest at the present prices; a root with mass left stays, alone.
void Forest::fell(std::size_t root) {
    for (std::int32_t column = std::exchange(first_column_[root], -1); column >= 0;) {
        const auto j = static_cast<std::size_t>(column);
        column = next_column_[j];
        beta_[j] = lambda_ - reach_[j];
        nearest_[j] = -1;
        full_.lower(j, lambda_);  // a lower bound, made exact when it comes up
    }
    const auto leave = [&](std::size_t i) {
        if (take_over(i)) return;
        p_[i] = lambda_ - offset_[i];
        offset_[i] = infinity;
        entry_[i] = -1;
    };
    for (std::int32_t row = std::exchange(first_row_[root], -1); row >= 0;) {
        const auto i = static_cast<std::size_t>(row);
        row = next_row_[i];  // before the row may go over to another tree
        leave(i);
    }
    if (supply_[root] == 0) leave(root);
}

Forest::Outcome Forest::grow(const Limits& limits, bool keep_path, Watch& watch) {
    while (sent_ < limits.target) {
        watch.tick();
        // At the same price a column with room comes first: it ends a path that others would only lengthen.
        const double open = open_.smallest(), full = full_.smallest();
        const double next = std::min(open, full);
        if (next > limits.ceiling) {
            lambda_ = limits.ceiling;
            return Outcome::done;
        }
        if (next == infinity) return Outcome::infeasible;
        const std::size_t j = open <= full ? open_.find(next) : full_.find(next);
        if (refresh(j)) continue;
        lambda_ = std::max(lambda_, next);
        if (demand_[j] > 0)
            send(j, limits.target, keep_path);
        else
            join(j);
    }
    return Outcome::done;
}

void Forest::column_prices(double* out) const {
    for (std::size_t j = 0; j < n_; ++j) {
        out[j] = std::max(0.0, is_inside(j) ? lambda_ - reach_[j] : beta_[j]);
    }
}

}  // namespace spadeful
