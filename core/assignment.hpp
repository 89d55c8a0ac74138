// Minimum-cost matching of a given size between two equally large sets, by an auction and shortest paths.
//
// A matching of k of n rows is a perfect one once n - k spare rows and n - k spare columns are added that
// match any real partner for nothing and never each other (Chapel et al., 2020). Then, in this order:
//   1. column reduction and a greedy pass (Jonker and Volgenant, Computing 38, 1987);
//   2. if many rows are left over, an auction with epsilon scaling (Bertsekas, Annals of OR 14, 1988)
//      for good prices: it need not be exact, and its epsilon adapts to how hard the rows fight;
//   3. one shortest augmenting path for each row that is still free, which makes the matching optimal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.hpp"
#include "watch.hpp"

namespace spadeful {

class Assignment {
public:
    // cost: n x n, row after row; spare < n. Afterwards the matching of n - spare pairs is optimal. Returns
    // false, with nothing done, if an entry is not finite or beyond 1e304.
    bool solve(const double* cost, std::size_t n, std::size_t spare, Watch& watch);
    // Takes one spare row and column away: the optimal matching with one pair more.
    void grow(Watch& watch);

    // The column of a row, or -1 if a spare one.
    std::int32_t column_of(std::size_t row) const {
        return mate_of_row_[row] < static_cast<std::int32_t>(n_) ? mate_of_row_[row] : -1;
    }
    // The price of one more pair, and what each column adds to it (>= 0, and 0 for an unmatched column).
    double price(double* column_prices) const;

private:
    std::size_t columns() const { return n_ + spare_; }
    const double* row(std::size_t i) const { return i < n_ ? cost_ + i * n_ : zeros_.data(); }
    double cost(std::size_t i, std::size_t j) const { return i < n_ && j < n_ ? cost_[i * n_ + j] : 0.0; }
    BestTwo best_two(std::size_t i) const;
    void match(std::size_t i, std::size_t j);
    std::size_t find_free_tie(std::size_t i, const BestTwo& best) const;
    double take_best(std::size_t i);
    bool tied() const;
    bool greedy(double& mean);  // mean: of what rows pay beyond the least
    double price_spares();
    void reduce_rows();
    void auction(double epsilon, Watch& watch);
    void level_spares();
    void keep_tight();
    bool augment(std::size_t free_row, std::size_t& scans, Watch& watch);
    std::int32_t advance(double distance);
    void flip_path(std::size_t free_row, std::size_t column, double distance);

    const double* cost_ = nullptr;
    std::size_t n_ = 0, spare_ = 0, ties_ = 0;
    const Kernels* kernels_ = nullptr;
    std::vector<double> price_, lows_, zeros_, open_price_, distance_, nearest_;
    std::vector<std::int32_t> mate_of_row_, mate_of_column_, free_rows_, stack_;

    // The search tree: rows in the order they were scanned, each with the distance it was reached at and what
    // to add to its costs; the columns in the order they were reached.
    struct Scan {
        std::int32_t row;
        double distance, shift;
    };
    struct Reach {
        std::int32_t column;
        double distance;
    };
    std::vector<Scan> scanned_;
    std::vector<Reach> reached_;
};

}  // namespace spadeful
