// Entropic transport.
#include <tuple>
#include <vector>

#include "bind.hpp"
#include "sweeps.hpp"

namespace spadeful {

using namespace nb::literals;

namespace {

using Batch = nb::ndarray<const double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using StepOf = std::tuple<double, double, double, double>;  // share, low, high, tau: see Side

void check_shapes(const Batch& costs, const Rows& rows, const Rows& columns, const Numbers& totals) {
    const std::size_t k = costs.shape(0), m = costs.shape(1), n = costs.shape(2);
    if (rows.shape(0) != k || rows.shape(1) != m || columns.shape(0) != k || columns.shape(1) != n || totals.shape(0) != k)
        throw nb::value_error("the potentials must have the shapes (k, m), (k, n) and (k,) of the costs");
}

// Potentials are moved in place; returns the sweeps made and the errors left.
nb::tuple sweeps(const Batch& costs, double reg, bool of_product, const Rows& rows, const Rows& columns,
                 const Numbers& totals, const Vector& log_a, const Vector& log_b, const StepOf& row_step,
                 const StepOf& column_step, double mass, double tol, std::size_t most, double worth, std::size_t threads) {
    check_shapes(costs, rows, columns, totals);
    const std::size_t k = costs.shape(0), m = costs.shape(1), n = costs.shape(2);
    if (log_a.shape(0) != m || log_b.shape(0) != n) throw nb::value_error("the weights must have the shapes (m,) and (n,)");
    const auto side = [](const Vector& log_weights, const StepOf& step) {
        const auto [share, low, high, tau] = step;
        return Side{log_weights.data(), share, low, high, tau};
    };
    const SweepRule rule{side(log_a, row_step), side(log_b, column_step), mass, of_product};
    const Patience patience{tol, most, worth};
    std::vector<std::int64_t> counts(k);
    std::vector<double> errors(k);
    share_out_quietly(k, threads, [&] {
        return [&, sweeper = Borrowed<Sweeper>(m * n)](std::size_t p, Watch& watch) mutable {
            const Swept swept = sweeper->run({costs.data() + p * m * n, reg}, m, n, rule, patience, rows.data() + p * m,
                                             columns.data() + p * n, totals.data() + p, watch);
            counts[p] = static_cast<std::int64_t>(swept.count);
            errors[p] = swept.error;
        };
    });
    return nb::make_tuple(to_numpy(std::move(counts), {k}), to_numpy(std::move(errors), {k}));
}

// Writes the plans of some potentials (k, m, n); returns their masses.
auto plans(const Batch& costs, double reg, const Rows& rows, const Rows& columns, const Numbers& totals,
           const Plans& out, std::size_t threads) {
    check_shapes(costs, rows, columns, totals);
    const std::size_t k = costs.shape(0), m = costs.shape(1), n = costs.shape(2);
    if (out.shape(0) != k || out.shape(1) != m || out.shape(2) != n)
        throw nb::value_error("the plans must have the shape (k, m, n) of the costs");
    std::vector<double> masses(k);
    share_out_quietly(k, threads, [&] {
        return [&](std::size_t p, Watch&) {
            masses[p] = exponentials({costs.data() + p * m * n, reg}, m, n, rows.data() + p * m, columns.data() + p * n,
                                     totals.data()[p], out.data() + p * m * n);
        };
    });
    return to_numpy(std::move(masses), {k});
}

void round_plans(const Plans& plans, const Vector& a, const Vector& b, double mass, bool fill, std::size_t threads) {
    const std::size_t k = plans.shape(0), m = plans.shape(1), n = plans.shape(2);
    if (a.shape(0) != m || b.shape(0) != n) throw nb::value_error("the weights must have the shapes (m,) and (n,)");
    share_out_quietly(k, threads, [&] {
        return [&](std::size_t p, Watch&) {
            make_feasible(plans.data() + p * m * n, m, n, a.data(), b.data(), mass, fill);
        };
    });
}

}  // namespace

void bind_sweeps(nb::module_& m) {
    m.def("sweeps", &sweeps, "costs"_a, "reg"_a, "of_product"_a, "rows"_a, "columns"_a, "totals"_a, "log_a"_a, "log_b"_a, "row_step"_a,
          "column_step"_a, "mass"_a, "tol"_a, "most"_a, "worth"_a, "threads"_a,
          "Sweep each problem of a batch until it has converged or more than `worth` sweeps are in sight; moves the "
          "potentials, returns sweeps and errors. A step is (share, low, high, tau).");
    m.def("plans", &plans, "costs"_a, "reg"_a, "rows"_a, "columns"_a, "totals"_a, "out"_a, "threads"_a,
          fresh, "Write exp(-costs / reg + rows + columns + totals), and return the sums.");
    m.def("round_plans", &round_plans, "plans"_a, "a"_a, "b"_a, "mass"_a, "fill"_a, "threads"_a,
          "Make plans feasible in place: rows at most a, columns at most b, of that mass if any pair may be filled.");
}

}  // namespace spadeful
