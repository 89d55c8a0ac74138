// Minimum-cost matching of a given size between two equally large sets.
//
// Columns have prices, and so has one more pair. A matching is optimal for its size if, at these prices, every
// matched row has its cheapest column, no row without one could have one below the price of a pair, and a free column costs
// nothing. All of that holds, but for some rows still to be matched, while they are matched one by one:
//   1. rows bid for their cheapest column (augmenting row reduction: Jonker and Volgenant, Computing 38, 1987);
//   2. one shortest augmenting path for each row that is still free makes the matching optimal. It leads to a free
//      column, or to a row that had better give up its own and stay unmatched.
// For less than all rows the price of a pair is guessed from below, and rises until the matching has nearly its
// size; the last pairs are added or taken away one at a time.
//
// Where paths grow long, good prices are found first; they need not be exact. For all rows by an auction with epsilon
// scaling (Bertsekas, Annals of OR 14, 1988), whose epsilon adapts to how hard the rows fight. For less, by the same
// problem with every other row and column, and so on down. A matching of k of n rows is then made perfect: n - k
// spare rows and n - k spare columns are added that match any real partner for nothing and never each other (Chapel
// et al., 2020).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.hpp"
#include "watch.hpp"

namespace spadeful {

class Assignment {
public:
    // cost: n x n, row after row; 0 < size <= n. Afterwards the matching of that many pairs is optimal. Returns
    // false, with nothing done, if an entry is not finite or beyond 1e304, or if fewer than n pairs are asked for and
    // costs are tied so often, as where points repeat, that following the mass path is quicker.
    bool solve(const double* cost, std::size_t n, std::size_t size, Watch& watch);
    // The optimal matching with one pair more, or with any number of them: best if there are a few more.
    void grow(Watch& watch);
    void resize(std::size_t size, Watch& watch);

    // The column of a row, or -1 if it has none.
    std::int32_t column_of(std::size_t row) const { return (turned_ ? mate_of_column_ : mate_of_row_)[row]; }
    // The price of one more pair, and what each column adds to it (>= 0, and 0 for an unmatched column).
    double price(double* column_prices) const;

private:
    std::size_t columns() const { return n_ + spare_; }
    const double* row(std::size_t i) const { return i < n_ ? cost_ + i * n_ : zeros_.data(); }
    double cost(std::size_t i, std::size_t j) const { return i < n_ && j < n_ ? cost_[i * n_ + j] : 0.0; }
    BestTwo best_two(std::size_t i) const;
    void match(std::size_t i, std::size_t j);

    bool rows_are_alike() const;
    void start(const double* cost, std::size_t n);
    bool match_all(Watch& watch);
    bool match_some(std::size_t size, Watch& watch);

    std::size_t find_free_tie(std::size_t i, const BestTwo& best) const;
    double take_best(std::size_t i);
    bool tied(std::size_t many) const;
    bool greedy(double& mean);  // mean: of what rows pay beyond the least
    void reduce_rows(std::size_t bids);

    double guess_price(std::size_t size);
    bool too_tied() const;
    bool too_fierce(std::size_t size) const;
    bool match_at_price(std::size_t size, Watch& watch);
    void shrink(Watch& watch);

    void add_spares(std::size_t count);
    void drop_spares();
    void auction(double mean, Watch& watch);
    bool take_half_prices(Watch& watch);
    void level_spares();
    void keep_tight();
    void augment_all(Watch& watch);

    enum class End { column, leaver, tired };
    void open_search();
    void scan(std::size_t i, double distance, double shift);
    bool reach_free();
    End search(Watch& watch);
    bool augment(std::size_t free_row, Watch& watch);
    void leave();
    void flip_path(std::size_t column, double distance);
    void raise_prices(double distance);

    const double* cost_ = nullptr;
    bool turned_ = false;  // rows and columns have changed places
    std::size_t n_ = 0, spare_ = 0, matched_ = 0, ties_ = 0;
    double pair_price_ = infinity;
    const Kernels* kernels_ = nullptr;
    // least_: a bound from below of what an unmatched row would pay
    std::vector<double> price_, least_, lows_, zeros_, open_price_, distance_, transposed_;
    std::vector<std::int32_t> mate_of_row_, mate_of_column_, free_rows_, stack_;
    std::unique_ptr<Assignment> half_;  // solves every other row and column
    std::vector<double> half_cost_, half_price_;

    // The search tree: rows in the order they were scanned, each with the distance it was reached at and what
    // to add to its costs; the columns in the order they were reached. They are made where they are kept: a copy, read
    // back at once in wider pieces than it was written, would wait for memory.
    struct Scan {
        Scan() = default;
        Scan(std::size_t i, double distance, double shift)
            : row(static_cast<std::int32_t>(i)), distance(distance), shift(shift) {}
        std::int32_t row = 0;
        double distance = 0, shift = 0;
    };
    struct Reach {
        Reach(std::size_t j, double distance) : column(static_cast<std::int32_t>(j)), distance(distance) {}
        std::int32_t column;
        double distance;
    };
    std::vector<Scan> scanned_;
    std::vector<Reach> reached_;
    Nearest nearest_;          // of the columns not yet reached
    Scan leaver_;              // the scanned row for which it is cheapest to stay unmatched,
    double bound_ = infinity;  // and the distance at which it does
    std::size_t scans_ = 0;    // that may still be done
};

}  // namespace spadeful
