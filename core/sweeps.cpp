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

double log_of_sum(const std::vector<double>& terms) {
    const double top = *std::max_element(terms.begin(), terms.end());
    if (!std::isfinite(top)) return top;
    double sum = 0;
    for (const double term : terms) sum += std::exp(term - top);
    return top + std::log(sum);
}

double sum_of(const double* x, std::size_t n) {
    double parts[4] = {0, 0, 0, 0};
    std::size_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (std::size_t part = 0; part < 4; ++part) parts[part] += x[i + part];
    for (; i < n; ++i) parts[0] += x[i];
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

}  // namespace

double exponentials(const Exponents& exponents, std::size_t m, std::size_t n, const double* rows, const double* columns,
                    double total, double* plan) {
    double mass = 0;
    for (std::size_t i = 0; i < m; ++i) {
        kernels().exponentials(exponents.cost + i * n, -1 / exponents.reg, columns, rows[i] + total, plan + i * n, n);
        mass += sum_of(plan + i * n, n);
    }
    return mass;
}

void Sweeper::Half::begin(const Side& its, double* given, std::size_t count) {
    side = &its;
    at = given;
    size = count;
    in_logs = its.share != 1 || its.tau > 0;
    const std::size_t padded = (count + row_group - 1) / row_group * row_group;
    factors.assign(padded, 0.0);
    std::fill_n(factors.begin(), count, 1.0);
    sums.resize(padded);
    moved.resize(count);
    if (in_logs) {
        potentials.assign(at, at + count);
        next.resize(count);
    }
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

double Sweeper::Half::potential(std::size_t i) const {
    return in_logs ? potentials[i] : at[i] + std::log(factors[i]);
}

// Whether a sum may have lost what matters. It is none the worse where the factor is at its bound whatever the sum.
bool Sweeper::Half::vanished(std::size_t i) const {
    return !(sums[i] < 1 / tiny) || (sums[i] < tiny && (in_logs || high[i] * tiny >= weights[i]));
}

double Sweeper::Half::log_potential(double log_sum, std::size_t i) const {
    return std::min(std::max(side->share * (side->log_weights[i] - log_sum), side->low), side->high);
}

bool Sweeper::Half::far() const {
    const auto [least, most] = std::minmax_element(factors.begin(), factors.begin() + static_cast<std::ptrdiff_t>(size));
    static const double limit = std::exp(far_away);
    return !(*least > 1 / limit && *most < limit);
}

Swept Sweeper::run(const Exponents& exponents, std::size_t m, std::size_t n, const SweepRule& rule, const Patience& patience,
                   double* rows, double* columns, double* total, Watch& watch) {
    exponents_ = exponents;
    rule_ = &rule;
    total_ = total;
    total_factor_ = 1;
    rows_.begin(rule.rows, rows, m);
    columns_.begin(rule.columns, columns, n);
    column_shifts_.resize(n);
    matrix_.resize(rows_.factors.size() * n);
    std::fill(matrix_.begin() + static_cast<std::ptrdiff_t>(m * n), matrix_.end(), 0.0);
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
    std::fill(columns_.sums.begin(), columns_.sums.end(), 0.0);
    double row_error = 0, mass = 0;
    for (std::size_t i = 0; i < m; i += row_group) {
        const double* rows = matrix_.data() + i * n;
        kernels().dots(rows, columns_.factors.data(), rows_.sums.data() + i, n);
        row_error += update(rows_, i, std::min(i + row_group, m));
        kernels().add_rows(rows, rows_.factors.data() + i, columns_.sums.data(), n);
    }
    const double column_error = update(columns_, 0, n);
    for (std::size_t j = 0; j < n; ++j) mass += columns_.sums[j] * columns_.factors[j];
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

// Moves some potentials, given the sums of their rows or columns without their own factors and the total's;
// returns the mass moved.
double Sweeper::update(Half& half, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) half.sums[i] *= total_factor_;
    if (half.in_logs) {
        for (std::size_t i = first; i < last; ++i)
            half.next[i] = half.log_potential(std::log(half.sums[i]) - half.at[i], i);
        kernels().exponentials(half.at + first, -1.0, half.next.data() + first, 0.0, half.moved.data() + first, last - first);
    } else {
        for (std::size_t i = first; i < last; ++i)
            half.moved[i] = std::min(std::max(half.weights[i] / half.sums[i], half.low[i]), half.high[i]);
    }
    double change = 0;
    for (std::size_t i = first; i < last; ++i) {
        if (half.vanished(i)) {
            change += update_vanished(half, i);
            continue;
        }
        change += std::abs(half.moved[i] - half.factors[i]) * half.sums[i];
        half.factors[i] = half.moved[i];
        if (half.in_logs) half.potentials[i] = half.next[i];
    }
    return change;
}

// The same from the logarithms, after which the row or column is made anew where it now is.
double Sweeper::update_vanished(Half& half, std::size_t i) {
    const double sum = log_sum(half, i), old = half.potential(i), now = half.log_potential(sum, i);
    half.at[i] = now;
    half.factors[i] = 1;
    half.bound(i);
    if (half.in_logs) half.potentials[i] = now;
    const std::size_t n = columns_.size;
    if (&half == &rows_) {
        make_row(i);
    } else {
        column_shifts_[i] = now + offset(half, i);
        for (std::size_t r = 0; r < rows_.size; ++r)
            matrix_[r * n + i] = std::exp(exponents_.cost[r * n + i] * (-1 / exponents_.reg) + column_shifts_[i] +
                                          (rows_.at[r] + offset(rows_, r) + *total_));
        half.sums[i] = std::exp(now + sum);
    }
    return std::abs(std::exp(now + sum) - std::exp(old + sum));
}

// The logarithm of a row's or column's sum without its own potential.
double Sweeper::log_sum(const Half& half, std::size_t i) const {
    const bool of_row = &half == &rows_;
    const Half& other = of_row ? columns_ : rows_;
    const std::size_t n = columns_.size;
    std::vector<double> terms(other.size);
    for (std::size_t j = 0; j < other.size; ++j)
        terms[j] = exponents_.cost[of_row ? i * n + j : j * n + i] * (-1 / exponents_.reg) + other.potential(j) + offset(other, j);
    return log_of_sum(terms) + offset(half, i) + *total_ + std::log(total_factor_);
}

// The best constant to move from columns to rows: sweeps alone find it slowly (Sejourne et al., 2022). The plan
// stays as it is, and with it the matrix.
void Sweeper::translate() {
    const auto pull = [](Half& half) {
        const double scale = -1 / half.side->tau;
        double top = -infinity, sum = 0;
        for (std::size_t i = 0; i < half.size; ++i)
            top = std::max(top, half.side->log_weights[i] + half.potentials[i] * scale);
        kernels().exponentials(half.potentials.data(), scale, half.side->log_weights, -top, half.moved.data(), half.size);
        for (std::size_t i = 0; i < half.size; ++i) sum += half.moved[i];
        return top + std::log(sum);
    };
    const double tau_a = rule_->rows.tau, tau_b = rule_->columns.tau;
    const double by = (pull(rows_) - pull(columns_)) * (tau_a * tau_b / (tau_a + tau_b));
    for (std::size_t i = 0; i < rows_.size; ++i) {
        rows_.at[i] += by;
        rows_.potentials[i] += by;
    }
    for (std::size_t j = 0; j < columns_.size; ++j) {
        columns_.at[j] -= by;
        columns_.potentials[j] -= by;
    }
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

void Sweeper::make_row(std::size_t i) {
    const std::size_t n = columns_.size;
    kernels().exponentials(exponents_.cost + i * n, -1 / exponents_.reg, column_shifts_.data(),
                           rows_.at[i] + offset(rows_, i) + *total_, matrix_.data() + i * n, n);
}

void Sweeper::make_matrix() {
    for (std::size_t j = 0; j < columns_.size; ++j) column_shifts_[j] = columns_.at[j] + offset(columns_, j);
    for (std::size_t i = 0; i < rows_.size; ++i) make_row(i);
}

void make_feasible(double* plan, std::size_t m, std::size_t n, const double* a, const double* b, double mass, bool fill) {
    const auto at_most = [](double limit, double sum) { return sum > limit ? limit / sum : 1.0; };
    std::vector<double> rows(m), columns(n, 0.0), factors(n);
    for (std::size_t i = 0; i < m; ++i) {
        double* row = plan + i * n;
        const double factor = at_most(a[i], sum_of(row, n));
        for (std::size_t j = 0; j < n; ++j) {
            row[j] *= factor;
            columns[j] += row[j];
        }
    }
    double total = 0;
    for (std::size_t j = 0; j < n; ++j) {
        factors[j] = at_most(b[j], columns[j]);
        columns[j] *= factors[j];
    }
    for (std::size_t i = 0; i < m; ++i) {
        double* row = plan + i * n;
        for (std::size_t j = 0; j < n; ++j) row[j] *= factors[j];
        rows[i] = sum_of(row, n);
        total += rows[i];
    }
    const double shrink = at_most(mass, total);
    double rows_left = 0, columns_left = 0;
    for (std::size_t i = 0; i < m; ++i) rows_left += rows[i] = std::max(a[i] - rows[i] * shrink, 0.0);
    for (std::size_t j = 0; j < n; ++j) columns_left += columns[j] = std::max(b[j] - columns[j] * shrink, 0.0);
    const double missing = std::max(mass - total * shrink, 0.0), left = rows_left * columns_left;
    const double share = fill && left > 0 ? missing / left : 0.0;
    for (std::size_t i = 0; i < m; ++i) {
        double* row = plan + i * n;
        const double own = rows[i] * share;
        for (std::size_t j = 0; j < n; ++j) row[j] = row[j] * shrink + own * columns[j];
    }
}

}  // namespace spadeful
