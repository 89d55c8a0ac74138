// Transport on lines.
#include <cmath>
#include <numeric>
#include <vector>

#include "bind.hpp"
#include "line.hpp"

namespace spadeful {

using namespace nb::literals;

namespace {

using Lines = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Power power_of(int p) {
    if (p != 1 && p != 2) throw nb::value_error("p must be 1 or 2");
    return p == 1 ? Power::one : Power::two;
}

// Partial transport on each of some lines: plans, values and their gradients in the points, the plans held fixed.
struct LineAnswers {
    std::vector<std::vector<Entry>> plans;
    std::vector<double> values, x_gradients, y_gradients;
    std::size_t m, n;
};

LineAnswers lines(const Lines& x, const Lines& y, double mass, int p, std::size_t threads) {
    const std::size_t count = x.shape(0), m = x.shape(1), n = y.shape(1);
    if (y.shape(0) != count || m == 0 || n == 0) throw nb::value_error("x and y must have the shapes (k, m) and (k, n)");
    const Power power = power_of(p);
    const bool whole = mass == 1;
    // To move a part, points are repeated so often that both sides hold as many, of one weight.
    const std::size_t all = whole ? 1 : std::lcm(m, n), x_times = whole ? 1 : all / m, y_times = whole ? 1 : all / n;
    const Units units(all, all, nullptr, nullptr);
    const std::int64_t target = units.of_mass(mass);
    const auto pairs = static_cast<std::size_t>(target / units.each);
    const double rest = static_cast<double>(target % units.each) / static_cast<double>(units.each);
    LineAnswers answers{std::vector<std::vector<Entry>>(count), std::vector<double>(count),
                        std::vector<double>(count * m), std::vector<double>(count * n), m, n};
    share_out_quietly(count, threads, [&] {
        return [&, line = Line(power)](std::size_t k, Watch& watch) mutable {
            const double *from = x.data() + k * m, *to = y.data() + k * n;
            line.place(from, m, x_times, to, n, y_times);
            answers.plans[k] = whole ? line.whole() : line.plan(pairs, rest, units.mass(units.each), watch);
            double* from_gradient = answers.x_gradients.data() + k * m;
            double* to_gradient = answers.y_gradients.data() + k * n;
            for (const Entry& e : answers.plans[k]) {
                const double way = from[e.row] - to[e.column];
                const double slope = power == Power::two ? 2 * way : static_cast<double>((way > 0) - (way < 0));
                answers.values[k] += e.mass * (power == Power::two ? way * way : std::abs(way));
                from_gradient[e.row] += e.mass * slope;
                to_gradient[e.column] -= e.mass * slope;
            }
        };
    });
    return answers;
}

// For points of unit weight: what each further pair costs, and the x and the y that it takes in.
nb::tuple line_path(const Vector& x, const Vector& y, int p) {
    Line line(power_of(p));
    std::vector<LineStep> steps;
    with_words("", [&] {
        nb::gil_scoped_release release;
        SignalWatch watch;
        line.place(x.data(), x.shape(0), 1, y.data(), y.shape(0), 1);
        steps = line.path(watch);
    });
    const std::size_t count = steps.size();
    std::vector<double> prices(count);
    std::vector<std::int64_t> rows(count), columns(count);
    for (std::size_t k = 0; k < count; ++k) {
        prices[k] = steps[k].price;
        rows[k] = steps[k].row;
        columns[k] = steps[k].column;
    }
    return nb::make_tuple(to_numpy(std::move(prices), {count}), to_numpy(std::move(rows), {count}),
                          to_numpy(std::move(columns), {count}));
}

}  // namespace

void bind_lines(nb::module_& m) {
    nb::class_<LineAnswers>(m, "LineAnswers", "Optimal partial plans on each of some lines.")
        .def_prop_ro("values", [](const LineAnswers& a) { return copy_of(a.values); }, fresh)
        .def_prop_ro("triplets", [](const LineAnswers& a) {
            std::vector<const std::vector<Entry>*> plans;
            for (const auto& plan : a.plans) plans.push_back(&plan);
            return to_triplets(plans, true);
        }, fresh, "line, row, column and mass of every entry")
        .def_prop_ro("gradients", [](const LineAnswers& a) {
            return nb::make_tuple(to_numpy(std::vector<double>(a.x_gradients), {a.plans.size(), a.m}),
                                  to_numpy(std::vector<double>(a.y_gradients), {a.plans.size(), a.n}));
        }, fresh, "of the values in the points (k, m) and (k, n), the plans held fixed");
    m.def("lines", &lines, "x"_a, "y"_a, "mass"_a, "p"_a, "threads"_a,
          "Partial transport of a mass between the points of k lines, x (k, m) and y (k, n), for the cost |x - y|^p.");
    m.def("line_path", &line_path, "x"_a, "y"_a, "p"_a,
          "Every number of pairs of points on one line: prices of the pairs, and the x and y that each takes in.");
}

}  // namespace spadeful
