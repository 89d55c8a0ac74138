#include "solver.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace spadeful {

namespace {

// Neumaier's sum: exact to the last bit or two whatever the order of magnitudes.
class Sum {
public:
    void add(double x) {
        const double next = total_ + x;
        lost_ += std::abs(total_) >= std::abs(x) ? (total_ - next) + x : (x - next) + total_;
        total_ = next;
    }
    double value() const { return total_ + lost_; }

private:
    double total_ = 0, lost_ = 0;
};

std::vector<std::int64_t> whole(const double* weights, std::size_t n, std::int64_t total) {
    const double sum = std::accumulate(weights, weights + n, 0.0);
    std::vector<std::int64_t> units(n);
    for (std::size_t i = 0; i < n; ++i) units[i] = std::llround(weights[i] / sum * static_cast<double>(total));
    // Rounding left over goes where it weighs least.
    *std::max_element(units.begin(), units.end()) += total - std::accumulate(units.begin(), units.end(), std::int64_t{0});
    return units;
}

std::vector<Entry> to_mass(const std::vector<Flow>& flows, const Units& units) {
    std::vector<Entry> entries;
    entries.reserve(flows.size());
    for (const Flow& flow : flows) entries.push_back({flow.row, flow.column, units.mass(flow.units)});
    return entries;
}

double value_of(const std::vector<Entry>& entries, const double* cost, std::size_t n) {
    double sum = 0;
    for (const Entry& e : entries)
        sum += cost[static_cast<std::size_t>(e.row) * n + static_cast<std::size_t>(e.column)] * e.mass;
    return sum;
}

// Whether it is quicker to follow the path of whole costs than to begin near its end: measured on colours of photos, clouds
// and random costs. It is the same on every machine, since of several optimal plans the two may find different ones.
bool is_followed(const Request& request, std::size_t n) {
    constexpr std::size_t smallest = 32, small = 64;
    constexpr double nearly_all = 0.95;
    const bool several = request.masses.size() > 1;
    if (n <= small) return n >= smallest && (several || request.crowded);
    return request.crowded && (several || request.masses.front() <= nearly_all);
}

// Costs beyond this could overflow when they are added up along a path.
constexpr double largest_cost = 1e304;

// A whole row at a time, without a way out, is several entries in one step.
void check(const double* cost, std::size_t m, std::size_t n) {
    const auto is_bad = [](double c) { return !(std::abs(c) <= largest_cost) & !(c == infinity); };
    for (std::size_t i = 0; i < m; ++i) {
        const double* row = cost + i * n;
        std::int64_t bad = 0;
        for (std::size_t j = 0; j < n; ++j) bad += is_bad(row[j]);
        if (bad == 0) continue;
        const std::size_t j = static_cast<std::size_t>(std::find_if(row, row + n, is_bad) - row);
        throw BadEntry{i, j, row[j]};
    }
}

// `rest`: units beyond whole points, which the next larger matching carries.
template <class Matching>
Answer from_matching(Matching& matching, const double* cost, std::size_t n, std::int64_t rest, const Units& units, Watch& watch) {
    Answer answer;
    answer.entries.reserve(n);
    const auto collect = [&](double mass) {
        for (std::size_t i = 0; i < n; ++i)
            if (const std::int32_t j = matching.column_of(i); j >= 0)
                answer.entries.push_back({static_cast<std::int32_t>(i), j, mass});
    };
    answer.column_prices.resize(n);
    collect(units.mass(units.each - rest));
    if (rest > 0) {
        matching.grow(watch);
        collect(units.mass(rest));
        std::stable_sort(answer.entries.begin(), answer.entries.end(), [](const Entry& x, const Entry& y) {
            return x.row != y.row ? x.row < y.row : x.column < y.column;
        });
        std::size_t last = 0;
        for (std::size_t k = 1; k < answer.entries.size(); ++k) {
            Entry& e = answer.entries[k];
            Entry& before = answer.entries[last];
            if (e.row == before.row && e.column == before.column)
                before.mass = units.mass(units.each);
            else
                answer.entries[++last] = e;
        }
        answer.entries.resize(last + 1);
    }
    answer.price = matching.price(answer.column_prices.data());
    answer.value = value_of(answer.entries, cost, n);
    return answer;
}

// One matching that grows from mass to mass.
template <class Matching>
void answer_by(Matching& matching, const double* cost, std::size_t n, const Units& units, const Request& request,
               Answer* answers, Watch& watch) {
    for (const std::size_t k : request.order) {
        const std::int64_t target = units.of_mass(request.masses[k]);
        matching.resize(static_cast<std::size_t>(target / units.each), watch);
        answers[k] = from_matching(matching, cost, n, target % units.each, units, watch);
    }
}

// Masses are doubles, units finer: a mass that was named as the largest one may miss it by their rounding.
bool is_rounding(std::int64_t units, const Units& of) { return units <= of.total >> 44; }

}  // namespace

Units::Units(std::size_t m, std::size_t n, const double* a, const double* b) {
    if (a || b) {
        total = std::int64_t{1} << 60;
        const std::vector<double> uniform(std::max(m, n), 1.0);
        supply = whole(a ? a : uniform.data(), m, total);
        demand = whole(b ? b : uniform.data(), n, total);
        return;
    }
    const auto rows = static_cast<std::int64_t>(m), columns = static_cast<std::int64_t>(n);
    const std::int64_t common = std::gcd(rows, columns);
    std::int64_t unit = 1;
    while (unit < (std::int64_t{1} << 40) && rows / common * columns * unit < (std::int64_t{1} << 60)) unit *= 2;
    supply.assign(m, columns / common * unit);
    demand.assign(n, rows / common * unit);
    total = rows / common * columns * unit;
    if (m == n) each = unit;
}

std::int64_t Units::of_mass(double mass) const {
    std::int64_t units = std::llround(mass * static_cast<double>(total));
    if (each) {  // k / n times n is not always k: a mass within rounding of whole points is whole points
        const std::int64_t points = (units + each / 2) / each;
        if (std::abs(units - points * each) <= 1 + points / 1024) units = points * each;
    }
    return std::clamp<std::int64_t>(units, 1, total);
}

Request::Request(std::vector<double> masses, double ceiling, bool along_path)
    : masses(std::move(masses)), order(this->masses.size()), ceiling(ceiling), along_path(along_path) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t k, std::size_t l) { return this->masses[k] < this->masses[l]; });
}

void Solver::solve(const double* cost, std::size_t m, std::size_t n, const Units& units, const Request& request,
                   Answer* answers, Watch& watch, Guess* guess) {
    if (by_matchings(cost, n, units, request, answers, watch, guess)) return;
    check(cost, m, n);
    forest_.start(cost, m, n, units.supply, units.demand);
    for (const std::size_t k : request.order) {
        const std::int64_t target = units.of_mass(request.masses[k]);
        const Forest::Outcome outcome = forest_.grow({target, request.ceiling}, false, watch);
        if (outcome == Forest::Outcome::infeasible && !is_rounding(target - forest_.sent(), units))
            throw Infeasible{request.masses[k], units.mass(forest_.sent())};
        answers[k] = from_forest(cost, units);
    }
}

// False, with nothing done, if there is no matching or the forest is quicker.
bool Solver::by_matchings(const double* cost, std::size_t n, const Units& units, const Request& request,
                          Answer* answers, Watch& watch, Guess* guess) {
    if (units.each == 0 || request.along_path || request.ceiling < infinity) return false;
    if (is_followed(request, n) && whole_.start(cost, n)) {
        answer_by(whole_, cost, n, units, request, answers, watch);
        return true;
    }
    const auto first = static_cast<std::size_t>(units.of_mass(request.masses[request.order.front()]) / units.each);
    if (first == 0 || !assignment_.solve(cost, n, first, watch, guess)) return false;
    answer_by(assignment_, cost, n, units, request, answers, watch);
    return true;
}

Answer Solver::from_forest(const double* cost, const Units& units) const {
    Answer answer;
    answer.entries = to_mass(forest_.flows().list(), units);
    const std::size_t n = units.demand.size();
    answer.value = value_of(answer.entries, cost, n);
    answer.price = forest_.price();
    answer.column_prices.resize(n);
    forest_.column_prices(answer.column_prices.data());
    return answer;
}

Path::Path(const double* cost, std::size_t m, std::size_t n, const Units& units, Watch& watch)
    : units(units), rows(m), columns(n), masses{0.0}, values{0.0} {
    check(cost, m, n);
    Forest forest;
    forest.start(cost, m, n, units.supply, units.demand);
    forest.grow({units.total}, true, watch);
    std::int64_t sent = 0;
    Sum value;
    for (const Segment& segment : forest.segments) {
        sent += segment.units;
        value.add(segment.cost * units.mass(segment.units));
        if (const double mass = units.mass(sent); mass > masses.back()) {
            masses.push_back(mass);
            values.push_back(value.value());
            prices.push_back(segment.price);
        } else {  // a crumb, too small to be seen in a double
            values.back() = value.value();
        }
    }
    segments = std::move(forest.segments);
    links = std::move(forest.links);
}

std::vector<Entry> Path::entries(double mass) const {
    Flows flows;
    flows.reset(rows, columns);
    std::int64_t left = units.of_mass(mass);
    for (const Segment& segment : segments) {
        const std::int64_t part = std::min(left, segment.units);
        for (std::int32_t k = 0; k < segment.length; ++k) {
            const Link& link = links[static_cast<std::size_t>(segment.first + k)];
            flows.add(link.row, link.column, k % 2 == 0 ? part : -part);
        }
        left -= part;
        if (left == 0) break;
    }
    return to_mass(flows.list(), units);
}

void row_prices(const double* cost, std::size_t m, std::size_t n, double price, const double* column_prices, double* out) {
    for (std::size_t i = 0; i < m; ++i)
        out[i] = std::max(0.0, price - kernels().best_two(cost + i * n, column_prices, n).first);
}

}  // namespace spadeful
