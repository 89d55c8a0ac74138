// Batches of the same two clouds have much the same prices: those of one are a start for the others.
#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "assignment.hpp"
#include "distances.hpp"
#include "watch.hpp"

namespace spadeful {

// What some points of both sides pay when a share of them is matched. Solved when first asked for, by whichever thread;
// the answers are the same whoever does.
class Precedent {
public:
    // rows, columns: n points of each side, which must stay where they are.
    Precedent(const Points& x, const std::int64_t* rows, const Points& y, const std::int64_t* columns, std::size_t n,
              Metric metric, double mass)
        : x_(x), y_(y), rows_(rows), columns_(columns), n_(n), metric_(metric), mass_(mass) {}

    // A place to work in, one for each thread.
    struct Desk {
        Distances distances;
        std::vector<double> cost;
    };

    // What one more pair of them costs. False if nothing can be told.
    bool pair_prices(PairPrices& out, Desk& desk, Watch& watch);
    // What each of some points of y, or of x if sides are turned, must cost at least for none of the points here to
    // want it: prices to start from. Likewise.
    bool prices(bool turned, const std::int64_t* which, std::size_t count, double* out, Desk& desk, Watch& watch);

private:
    bool solve(Desk& desk, Watch& watch);

    Points x_, y_;
    const std::int64_t *rows_, *columns_;
    std::size_t n_;
    Metric metric_;
    double mass_;
    std::once_flag solved_;
    bool good_ = false;
    PairPrices pair_prices_{};
    std::vector<double> rows_give_, columns_give_;  // for a partner, beside the cost
};

}  // namespace spadeful
