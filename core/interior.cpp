#include "interior.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "transpose.hpp"

namespace spadeful {

namespace {
// The gap to reach, as a share of the objective. Objectives below so much of a problem's size count as that much: the digits
// of a difference end there.
constexpr double exact = 1e-10, nought = 1e-4;
// How much of plan times slack a step aims to keep, and how much of a gap that is small enough may stay; how much of the way to
// the border a step goes, how far a potential moves at most, in the larger of the taus, and how many steps there may be.
constexpr double centring = 0.1, stays = 0.3, inside = 0.99, longest = 3;
constexpr int most_steps = 200;
// Where potentials add up to a cost of so many taus, one of the marginals is below exp(-far) of its weight: such pairs carry
// nothing that counts.
constexpr double far = 30;

constexpr std::size_t padded(std::size_t n) { return (n + panel_width - 1) / panel_width * panel_width; }
double inverse(double x) { return x > 0 ? 1 / x : 0; }
}  // namespace

void Interior::Points::take(const Side& side, double unit) {
    tau = side.tau / unit;
    weight.clear();
    for (const std::size_t k : which) weight.push_back(side.weights[k]);
    for (std::vector<double>* each : {&potential, &mass, &change, &step}) each->resize(which.size());
}

double Interior::Points::dual(std::size_t k) const { return -tau * weight[k] * std::expm1(-potential[k] / tau); }

double Interior::Points::beyond(std::size_t k) const {
    const double excess = (mass[k] - weight[k]) / weight[k];  // keeps its digits where it is small, and only there
    return (std::abs(excess) < 0.5 ? std::log1p(excess) : std::log(mass[k] / weight[k])) + potential[k] / tau;
}

double Interior::Points::gap(std::size_t k) const {
    const double x = beyond(k);
    return tau * mass[k] * (x + std::expm1(-x));
}

// The columns make up the system that is left, so let there not be more of them.
std::vector<Entry> Interior::solve(const double* cost, const Side& rows, const Side& columns, double* row_potentials,
                                   double* column_potentials, Watch& watch) {
    if (rows.size >= columns.size) return solve_tall(cost, rows, columns, row_potentials, column_potentials, watch);
    transposed_.resize(rows.size * columns.size);
    transpose(cost, transposed_.data(), rows.size, columns.size);
    auto found = solve_tall(transposed_.data(), columns, rows, column_potentials, row_potentials, watch);
    for (Entry& each : found) std::swap(each.row, each.column);
    std::stable_sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) { return a.row < b.row; });
    return found;
}

std::vector<Entry> Interior::solve_tall(const double* cost, const Side& rows, const Side& columns, double* row_potentials,
                                        double* column_potentials, Watch& watch) {
    const std::size_t m = rows.size, n = columns.size;
    const double unit = rows.tau + columns.tau;  // the problem is the same in any unit of cost
    const auto near = [&](std::size_t i, std::size_t j) {
        return cost[i * n + j] <= far * unit && rows.weights[i] > 0 && columns.weights[j] > 0;
    };
    std::vector<bool> has_pair(n);
    rows_.which.clear();
    columns_.which.clear();
    for (std::size_t i = 0; i < m; ++i) {
        bool any = false;
        for (std::size_t j = 0; j < n; ++j)
            if (near(i, j)) any = has_pair[j] = true;
        if (any) rows_.which.push_back(i);
    }
    for (std::size_t j = 0; j < n; ++j)
        if (has_pair[j]) columns_.which.push_back(j);
    rows_.take(rows, unit);
    columns_.take(columns, unit);
    cost_.clear();
    for (const std::size_t i : rows_.which)
        for (const std::size_t j : columns_.which) cost_.push_back(near(i, j) ? cost[i * n + j] / unit : infinity);

    if (!cost_.empty()) {
        start();
        for (int k = 0; k < most_steps && !optimal(); ++k) {
            find_steps(watch);
            advance();
        }
        take_best();
    }

    // Capped like this, potentials are feasible for the pairs left out as well, and lose next to nothing.
    std::fill_n(row_potentials, m, far * rows.tau);
    std::fill_n(column_potentials, n, far * columns.tau);
    for (const auto& [points, out] : {std::pair(&rows_, row_potentials), std::pair(&columns_, column_potentials)})
        for (std::size_t k = 0; k < points->which.size(); ++k)
            out[points->which[k]] = std::min(out[points->which[k]], unit * points->potential[k]);
    // Those of points without weight do not count, and need only be feasible.
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; rows.weights[i] == 0 && j < n; ++j)
            row_potentials[i] = std::min(row_potentials[i], cost[i * n + j] - column_potentials[j]);
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j)
            if (columns.weights[j] == 0)
                column_potentials[j] = std::min(column_potentials[j], cost[i * n + j] - row_potentials[i]);
    return entries();
}

// What the optimum has. An entry that is taken away takes its mass times its slack off the gap, and adds half of tau mass^2
// over the marginal for both of its points: of those that it is better without only traces are left. Many of a row may be.
std::vector<Entry> Interior::entries() const {
    std::vector<Entry> found;
    const auto many = static_cast<double>(std::max(rows_.which.size(), columns_.which.size()));
    for (std::size_t i = 0; i < rows_.which.size(); ++i)
        for (std::size_t j = 0; j < columns_.which.size(); ++j) {
            const double p = plan_[at(i, j)], costs = p * (rows_.tau / rows_.mass[i] + columns_.tau / columns_.mass[j]);
            if (p > 0 && slack_[at(i, j)] <= many * costs)
                found.push_back({static_cast<std::int32_t>(rows_.which[i]), static_cast<std::int32_t>(columns_.which[j]), p});
        }
    return found;
}

// Feasible potentials, as if a single pair shared its cost out in proportion to the taus, and a plan of about their masses.
void Interior::start() {
    const std::size_t m = rows_.which.size(), n = columns_.which.size();
    size_ = 0;
    for (const double c : cost_)
        if (c < infinity) size_ = std::max(size_, std::abs(c));
    size_ = size_ > 0 ? std::min(size_, 1.0) : 1.0;
    const double off = 0.1 * size_;  // the border, and not so far that digits are lost
    std::fill(columns_.potential.begin(), columns_.potential.end(), infinity);
    for (std::size_t i = 0; i < m; ++i) {
        const double low = *std::min_element(&cost_[at(i, 0)], &cost_[at(i, 0)] + n);
        rows_.potential[i] = (low - off) * rows_.tau;
        for (std::size_t j = 0; j < n; ++j)
            columns_.potential[j] = std::min(columns_.potential[j], cost_[at(i, j)] - rows_.potential[i]);
    }
    for (double& each : columns_.potential) each -= off * columns_.tau;
    slack_.resize(m * n);
    plan_.resize(m * n);
    step_.resize(m * n);
    inverse_slack_.resize(m * n);
    for (std::size_t i = 0; i < m; ++i) {
        const double mass = rows_.weight[i] * std::exp(-rows_.potential[i] / rows_.tau);
        for (std::size_t j = 0; j < n; ++j) {
            const std::size_t e = at(i, j);
            slack_[e] = cost_[e] - rows_.potential[i] - columns_.potential[j];
            plan_[e] = mass * columns_.weight[j] * std::min(1.0, 0.1 / slack_[e]);
        }
    }
    lift_light_points();
    stride_ = padded(n + 2);
    nodes_.assign((m + n + row_group) * stride_, 0.0);
    pivot_.resize(m + n);
    best_.gap = infinity;
    by_.resize((m + n) * row_group);
}

// Where all entries times their slacks are alike, points of hardly any weight have much more mass, and potentials low enough to
// ask for it. They begin there: the way would be long.
void Interior::lift_light_points() {
    const std::size_t m = rows_.which.size(), n = columns_.which.size();
    add_up();
    const double mu = total_ / static_cast<double>(pairs_);
    for (Points* side : {&rows_, &columns_}) std::fill(side->change.begin(), side->change.end(), 0.0);
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
            const double lifted = mu / slack_[at(i, j)];
            rows_.change[i] += lifted;
            columns_.change[j] += lifted;
        }
    for (Points* side : {&rows_, &columns_})
        for (std::size_t k = 0; k < side->which.size(); ++k) {
            const double lower = side->tau * std::log(std::max(1.0, side->change[k] / side->mass[k]));
            side->step[k] = lower < 0.1 * size_ ? lower : 0;  // farther off, digits would be lost
            side->potential[k] -= side->step[k];
        }
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
            const double lower = rows_.step[i] + columns_.step[j];
            slack_[at(i, j)] += lower;
            if (lower > 0) plan_[at(i, j)] = mu / slack_[at(i, j)];
        }
}

// The plan's marginals, and all that it has times its slack.
void Interior::add_up() {
    const std::size_t m = rows_.which.size(), n = columns_.which.size();
    double total = 0;
    pairs_ = 0;
    std::fill(columns_.mass.begin(), columns_.mass.end(), 0.0);
    for (std::size_t i = 0; i < m; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < n; ++j) {
            const double p = plan_[at(i, j)];
            if (!(p > 0)) continue;  // its slack may be infinite
            sum += p;
            columns_.mass[j] += p;
            total += p * slack_[at(i, j)];
            ++pairs_;
        }
        rows_.mass[i] = sum;
    }
    total_ = total;
}

// The gap is the plan's times its slacks, and the divergences of its marginals from those that the potentials ask for: in this
// form nothing cancels. Also sets the mu to aim for next: of a gap that is small enough a share may stay, for steps beyond what
// is asked for would lose their digits.
bool Interior::optimal() {
    add_up();
    double dual = 0, gap = total_;
    for (const Points* side : {&rows_, &columns_})
        for (std::size_t k = 0; k < side->which.size(); ++k) {
            dual += side->dual(k);
            gap += side->gap(k);
        }
    const auto enough = [&](double objective) { return exact * (objective + nought * size_); };
    // A dual objective bounds the optimum from below, so one above 0 is not too large; one below may be far off.
    const double floor = stays * enough(dual > 0 ? dual : std::min(-dual, size_));
    mu_ = std::max(centring * total_, floor) / static_cast<double>(pairs_);
    if (std::isfinite(dual) && gap < best_.gap) {
        best_.gap = gap;
        best_.plan = plan_;
        best_.slack = slack_;
        best_.rows = rows_.potential;
        best_.columns = columns_.potential;
    }
    return std::isfinite(dual) && gap <= enough(std::abs(dual));
}

// Of a problem beyond the digits of numbers, steps lead away again in the end.
void Interior::take_best() {
    if (best_.gap == infinity) return;
    plan_.swap(best_.plan);
    slack_.swap(best_.slack);
    rows_.potential.swap(best_.rows);
    columns_.potential.swap(best_.columns);
    add_up();
}

// The Newton step of the potentials. The marginals' equations are linearised as logarithms, in which they are nearly straight.
void Interior::find_steps(Watch& watch) {
    const std::size_t m = rows_.which.size(), n = columns_.which.size();
    const auto wanted = [](const Points& side, std::size_t k) {
        return -side.mass[k] * side.beyond(k) - side.change[k];
    };
    std::fill(columns_.change.begin(), columns_.change.end(), 0.0);
    for (std::size_t i = 0; i < m; ++i) {
        const double *p = &plan_[at(i, 0)], *slack = &slack_[at(i, 0)];
        double *row = node(i), *inverse_slack = &inverse_slack_[at(i, 0)];
        for (std::size_t j = 0; j < n; ++j) inverse_slack[j] = 1 / slack[j];
        for (std::size_t j = 0; j < n; ++j) row[j] = p[j] * inverse_slack[j];
        double sum = 0, changes = 0;
        for (std::size_t j = 0; j < n; ++j) {
            const double change = mu_ * inverse_slack[j] - p[j];  // of the plan, if the potentials stayed
            sum += row[j];
            changes += change;
            columns_.change[j] += change;
        }
        rows_.change[i] = changes;
        row[n] = rows_.mass[i] / rows_.tau;
        row[n + 1] = -wanted(rows_, i);
        pivot_[i] = inverse(sum + row[n]);
    }
    for (std::size_t k = 0; k < n; ++k) {
        double* row = node(m + k);
        std::fill_n(row, n, 0.0);
        row[n] = columns_.mass[k] / columns_.tau;
        row[n + 1] = wanted(columns_, k);
    }
    for (std::size_t k = 0; k < n; k += row_group) {
        watch.check();
        eliminate(k);
    }
    const auto solved = [&](std::size_t t, std::size_t from) {
        const double* row = node(t);
        return pivot_[t] * std::inner_product(row + from, row + n, &columns_.step[0] + from, row[n + 1]);
    };
    for (std::size_t k = n; k-- > 0;) columns_.step[k] = solved(m + k, k + 1);
    for (std::size_t i = 0; i < m; ++i) rows_.step[i] = -solved(i, 0);
}

// A few columns, from the k-th on, given what was eliminated before. What stands left of the diagonal means nothing.
void Interior::eliminate(std::size_t k) {
    const std::size_t n = columns_.which.size(), first = rows_.which.size() + k, count = std::min(row_group, n - k);
    for (std::size_t t = 0; t < first; ++t)
        for (std::size_t r = 0; r < row_group; ++r) by_[t * row_group + r] = r < count ? node(t)[k + r] * pivot_[t] : 0;
    const std::size_t begin = k / panel_width * panel_width;
    kernels().combine(node(0) + begin, by_.data(), first, node(first) + begin, stride_, stride_ - begin);
    for (std::size_t r = 0; r < count; ++r) {
        double* row = node(first + r);
        for (std::size_t q = 0; q < r; ++q) {
            const double* before = node(first + q);
            const double by = before[k + r] * pivot_[first + q];
            for (std::size_t j = k + r + 1; j < n + 2; ++j) row[j] += by * before[j];
        }
        pivot_[first + r] = inverse(std::accumulate(row + k + r + 1, row + n, row[n]));
    }
}

// Goes that way, short of where an entry of the plan or a slack would vanish. Slacks are carried along: formed anew they would
// lose their digits as they become small.
void Interior::advance() {
    const std::size_t m = rows_.which.size(), n = columns_.which.size();
    double plan_room = infinity, slack_room = infinity;
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
            const std::size_t e = at(i, j);
            const double towards = rows_.step[i] + columns_.step[j];
            const double step = (mu_ + plan_[e] * towards) * inverse_slack_[e] - plan_[e];
            // Compared without dividing, which is slow. Where there is nothing to fall, nothing is less.
            if (plan_[e] < plan_room * -step) plan_room = plan_[e] / -step;
            if (slack_[e] < slack_room * towards) slack_room = slack_[e] / towards;
            step_[e] = step;
        }
    double stride = 0;
    for (const Points* side : {&rows_, &columns_})
        for (const double step : side->step) stride = std::max(stride, std::abs(step));
    stride /= std::max(rows_.tau, columns_.tau);
    const double plan_length = std::min(1.0, inside * plan_room);
    const double length = std::min({1.0, inside * slack_room, stride > 0 ? longest / stride : 1.0});
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
            plan_[at(i, j)] += plan_length * step_[at(i, j)];
            slack_[at(i, j)] -= length * (rows_.step[i] + columns_.step[j]);
        }
    for (Points* side : {&rows_, &columns_})
        for (std::size_t k = 0; k < side->which.size(); ++k) side->potential[k] += length * side->step[k];
}

}  // namespace spadeful
