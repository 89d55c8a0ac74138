#include "precedent.hpp"

#include <algorithm>

#include "solver.hpp"

namespace spadeful {

// Once; false if points are not finite, or too far apart.
bool Precedent::solve(Desk& desk, Watch& watch) {
    std::call_once(solved_, [&] {
        desk.cost.resize(n_ * n_);
        if (!desk.distances.measure(x_, rows_, n_, y_, columns_, n_, metric_, desk.cost.data())) return;
        Answer answers[2];
        const Request request({PairPrices::nearly * mass_, mass_});
        try {
            Solver().solve(desk.cost.data(), n_, n_, Units(n_, n_, nullptr, nullptr), request, answers, watch);
        } catch (const BadEntry&) {  // between two pairs, which may be farther apart than the points of any
            return;
        }
        const Answer& answer = answers[1];
        rows_give_.resize(n_);
        columns_give_.resize(n_);
        for (std::size_t i = 0; i < n_; ++i) {
            const double pays = kernels().best_two(&desk.cost[i * n_], answer.column_prices.data(), n_).first;
            rows_give_[i] = std::min(pays, answer.price);
            columns_give_[i] = answer.price - answer.column_prices[i];
        }
        pair_prices_ = {answers[0].price, answer.price};
        good_ = true;
    });
    return good_;
}

bool Precedent::pair_prices(PairPrices& out, Desk& desk, Watch& watch) {
    if (!solve(desk, watch)) return false;
    out = pair_prices_;
    return true;
}

bool Precedent::prices(bool turned, const std::int64_t* which, std::size_t count, double* out, Desk& desk, Watch& watch) {
    if (!solve(desk, watch)) return false;
    desk.cost.resize(n_ * count);
    const bool finite = turned ? desk.distances.measure(y_, columns_, n_, x_, which, count, metric_, desk.cost.data())
                               : desk.distances.measure(x_, rows_, n_, y_, which, count, metric_, desk.cost.data());
    if (!finite) return false;
    const std::vector<double>& give = turned ? columns_give_ : rows_give_;
    std::fill_n(out, count, 0.0);
    for (std::size_t i = 0; i < n_; ++i) kernels().outbid(&desk.cost[i * count], give[i], out, count);
    return true;
}

}  // namespace spadeful
