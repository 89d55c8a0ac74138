#include "sweeps.hpp"

#include <algorithm>
#include <cmath>

namespace spadeful {

namespace {

// Potentials that have moved this far are absorbed: exp(60) is far from overflow.
constexpr double far_away = 60.0;
// Sums below this may have lost terms that were too small for a double; those above its inverse may be infinite.
constexpr double tiny = 1e-290;
// Sweeps between two looks at how fast the error falls.
constexpr std::size_t look = 20;

double log_of_sum(std::size_t count, const std::vector<double>& terms) {
    const double top = *std::max_element(terms.begin(), terms.begin() + static_cast<std::ptrdiff_t>(count));
    if (!std::isfinite(top)) return top;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += std::exp(terms[i] - top);
    return top + std::log(sum);
}

}  // namespace

void exponentials(const double* logs, std::size_t m, std::size_t n, const double* rows, const double* columns,
                  double total, double* plan) {
    for (std::size_t i = 0; i < m; ++i)
        kernels().exponentials(logs + i * n, columns, rows[i] + total, plan + i * n, n);
}

void Sweeper::Half::begin(const Side& its, double* potentials, std::size_t count) {
    side = &its;
    at = potentials;
    size = count;
    in_logs = its.share != 1 || its.tau > 0;
    const std::size_t padded = (count + row_group - 1) / row_group * row_group;
    factors.assign(padded, 0.0);
    std::fill_n(factors.begin(), count, 1.0);
    weights.resize(count);
    low.resize(count);
    high.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        weights[i] = std::exp(its.log_weights[i]);
        bound(i);
    }
}

// Between which values a factor beside the absorbed potential stays.
void Sweeper::Half::bound(std::size_t i) {
    low[i] = std::exp(side->low - at[i]);
    high[i] = std::exp(side->high - at[i]);
}

double Sweeper::Half::potential(std::size_t i) const { return at[i] + std::log(factors[i]); }

double Sweeper::Half::log_potential(double log_sum, std::size_t i) const {
    return std::min(std::max(side->share * (side->log_weights[i] - log_sum), side->low), side->high);
}

bool Sweeper::Half::far() const {
    const auto [least, most] = std::minmax_element(factors.begin(), factors.begin() + static_cast<std::ptrdiff_t>(size));
    static const double limit = std::exp(far_away);
    return !(*least > 1 / limit && *most < limit);
}

Swept Sweeper::run(const double* logs, std::size_t m, std::size_t n, const SweepRule& rule, const Patience& patience,
                   double* rows, double* columns, double* total, Watch& watch) {
    logs_ = logs;
    rule_ = &rule;
    total_ = total;
    total_factor_ = 1;
    rows_.begin(rule.rows, rows, m);
    columns_.begin(rule.columns, columns, n);
    column_sums_.resize(n);
    matrix_.assign(rows_.factors.size() * n, 0.0);
    make_matrix();
    Swept swept;
    double before = infinity;
    while (swept.count < patience.sweeps) {
        watch.check();
        swept.error = sweep();
        ++swept.count;
        if (swept.error <= patience.tol) break;
        if (swept.count % look == 0) {
            const double to_go = look * std::log(patience.tol / swept.error) / std::log(swept.error / before);
            if (!(to_go >= 0 && to_go < patience.worth)) break;
            before = swept.error;
        }
        if (rows_.far() || columns_.far() || std::abs(std::log(total_factor_)) > far_away) {
            absorb_potentials();
            make_matrix();
        }
    }
    absorb_potentials();
    return swept;
}

// Rows, columns, total, each to its optimum; returns the share of mass that the old potentials misplaced.
double Sweeper::sweep() {
    const std::size_t m = rows_.size, n = columns_.size;
    std::fill(column_sums_.begin(), column_sums_.end(), 0.0);
    double row_error = 0, column_error = 0, mass = 0;
    for (std::size_t i = 0; i < m; i += row_group) {
        double sums[row_group];
        kernels().dots(matrix_.data() + i * n, columns_.factors.data(), sums, n);
        for (std::size_t r = i; r < std::min(i + row_group, m); ++r)
            row_error += update(rows_, r, sums[r - i] * total_factor_);
        kernels().add_rows(matrix_.data() + i * n, rows_.factors.data() + i, column_sums_.data(), n);
    }
    for (std::size_t j = 0; j < n; ++j) {
        column_error += update(columns_, j, column_sums_[j] * total_factor_);
        mass += column_sums_[j] * total_factor_ * columns_.factors[j];
    }
    double error = std::max(row_error, column_error);
    if (rule_->mass > 0) {
        const double change = rule_->mass / mass;
        total_factor_ *= change;
        mass = rule_->mass;
        error += std::abs(change - 1) * mass;
    }
    if (rule_->rows.tau > 0) translate();
    return error == 0 ? 0.0 : error / mass;
}

// Moves one potential, given the sum of its row or column without its own factor; returns the mass moved.
double Sweeper::update(Half& half, std::size_t i, double sum) {
    double& factor = half.factors[i];
    const double old = factor;
    // A sum that vanished is none the worse where the factor is at its bound whatever the sum.
    if (!(sum < 1 / tiny) || (sum < tiny && (half.in_logs || half.high[i] * tiny >= half.weights[i])))
        return update_vanished(half, i);
    if (half.in_logs)
        factor = std::exp(half.log_potential(std::log(sum) - half.at[i], i) - half.at[i]);
    else
        factor = std::min(std::max(half.weights[i] / sum, half.low[i]), half.high[i]);
    return std::abs(factor - old) * sum;
}

// The same from the logarithms, after which the row or column is made anew where it now is.
double Sweeper::update_vanished(Half& half, std::size_t i) {
    const double sum = log_sum(half, i), old = half.potential(i), now = half.log_potential(sum, i);
    half.at[i] = now;
    half.factors[i] = 1;
    half.bound(i);
    const std::size_t n = columns_.size;
    if (&half == &rows_) {
        kernels().exponentials(logs_ + i * n, columns_.at, now + *total_, matrix_.data() + i * n, n);
    } else {
        for (std::size_t r = 0; r < rows_.size; ++r)
            matrix_[r * n + i] = std::exp(logs_[r * n + i] + rows_.at[r] + now + *total_);
        column_sums_[i] = std::exp(now + sum) / total_factor_;
    }
    return std::abs(std::exp(now + sum) - std::exp(old + sum));
}

double Sweeper::log_sum(const Half& half, std::size_t i) const {
    const bool of_row = &half == &rows_;
    const Half& other = of_row ? columns_ : rows_;
    const std::size_t n = columns_.size;
    std::vector<double> terms(other.size);
    for (std::size_t j = 0; j < other.size; ++j) terms[j] = (of_row ? logs_[i * n + j] : logs_[j * n + i]) + other.potential(j);
    return log_of_sum(terms.size(), terms) + *total_ + std::log(total_factor_);
}

// The best constant to move from columns to rows: sweeps alone find it slowly (Sejourne et al., 2022). The plan
// stays as it is, and with it the matrix.
void Sweeper::translate() {
    const auto pull = [](const Half& half) {
        std::vector<double> terms(half.size);
        for (std::size_t i = 0; i < half.size; ++i)
            terms[i] = half.side->log_weights[i] - half.potential(i) / half.side->tau;
        return log_of_sum(half.size, terms);
    };
    const double tau_a = rule_->rows.tau, tau_b = rule_->columns.tau;
    const double by = (pull(rows_) - pull(columns_)) * (tau_a * tau_b / (tau_a + tau_b));
    for (std::size_t i = 0; i < rows_.size; ++i) rows_.at[i] += by;
    for (std::size_t j = 0; j < columns_.size; ++j) columns_.at[j] -= by;
}

void Sweeper::absorb_potentials() {
    for (Half* half : {&rows_, &columns_})
        for (std::size_t i = 0; i < half->size; ++i) {
            half->at[i] = half->potential(i);
            half->factors[i] = 1;
            half->bound(i);
        }
    *total_ += std::log(total_factor_);
    total_factor_ = 1;
}

void Sweeper::make_matrix() {
    exponentials(logs_, rows_.size, columns_.size, rows_.at, columns_.at, *total_, matrix_.data());
}

}  // namespace spadeful
