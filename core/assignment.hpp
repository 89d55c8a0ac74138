// Minimum-cost matching of a given size between two equally large sets.
//
// Columns have prices, and so has one more pair. A matching is optimal for its size if, at these prices, every
// matched row has its cheapest column, no row without one could have one below the price of a pair, and a free column costs
// nothing. All of that holds, but for some rows still to be matched, while they are matched one by one:
//   1. rows bid for their cheapest column (augmenting row reduction: Jonker and Volgenant, Computing 38, 1987);
//   2. one shortest augmenting path for each row that is still free makes the matching optimal. It leads to a free
//      column, or to a row that had better give up its own and stay unmatched.
// For less than all rows the price of a pair is guessed from below, or from similar problems, and rises until the matching
// has nearly its size; the last pairs are added or taken away one at a time.
//
// Paths leave trees behind, along which later ones reach many rows at once.
//
// Where paths grow long, good prices are found first; they need not be exact. Where most rows fight over few columns, they
// are guessed, or those of the same problem with every other row and column, and so on down; elsewhere of an auction
// with epsilon scaling (Bertsekas, Annals of OR 14, 1988), whose epsilon adapts to how hard they fight. A matching of k
// of n rows is then made perfect: n - k spare rows and n - k spare columns are added that match any real partner for nothing and never each other (Chapel
// et al., 2020).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.hpp"
#include "trees.hpp"
#include "watch.hpp"

namespace spadeful {

// What a pair costs when nearly all are found, and when all are.
struct PairPrices {
    static constexpr double nearly = 0.95;
    double before, after;
};

// What similar problems tell about this one, to start from.
class Guess {
public:
    virtual ~Guess() = default;
    // False if it knows none; likewise below.
    virtual bool pair_prices(PairPrices& prices) = 0;
    // Writes prices of all columns, of the rows instead if sides are turned.
    virtual bool prices(bool turned, double* prices) = 0;
};

class Assignment {
public:
    // cost: n x n, row after row; 0 < size <= n. Afterwards the matching of that many pairs is optimal. Returns
    // false, with nothing done, if an entry is not finite or beyond 1e304, or if fewer than n pairs are asked for and
    // costs are tied so often, as where points repeat, that following the mass path is quicker. The guess may be null.
    bool solve(const double* cost, std::size_t n, std::size_t size, Watch& watch, Guess* guess = nullptr);
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
    bool match_all(Watch& watch, Guess* guess);
    bool match_some(std::size_t size, Watch& watch, Guess* guess);

    std::size_t find_free_tie(std::size_t i, const BestTwo& best) const;
    double take_best(std::size_t i);
    bool tied(std::size_t many) const;
    bool greedy(double& mean);  // mean: of what rows pay beyond the least
    void reduce_rows(std::size_t bids);

    double guess_price(std::size_t size);
    bool too_tied() const;
    bool too_fierce(std::size_t size, double share) const;
    bool match_at_price(std::size_t size, Watch& watch);
    void shrink(Watch& watch);

    void add_spares(std::size_t count);
    void drop_spares();
    void auction(double mean, Watch& watch);
    bool take_half_prices(Watch& watch);
    bool take_prices(Watch& watch, Guess* guess);
    void level_spares();
    void keep_tight();
    void augment_all(Watch& watch);

    // A column that was reached from one of a group of rows at its key, and the row that has it, if any.
    struct Head {
        std::int32_t row, column, group;
        double key;
    };
    enum class End { column, leaver, tired };
    void resize_search();
    void open_search();
    void add(std::size_t i, std::int32_t j, double distance, double shift);
    void add_branch(std::size_t i, double distance);
    void add_root(std::size_t i);
    void scan();
    Head head(std::size_t column) const;
    std::size_t origin(const Head& head) const;
    std::size_t row_before(std::size_t row) const;
    bool reach();
    End search(Watch& watch);
    bool augment(std::size_t free_row, Watch& watch);
    void take_path();
    void leave();
    void flip_path(std::size_t column, std::size_t row, std::int32_t next);
    void raise_prices(double distance);

    const double* cost_ = nullptr;
    bool turned_ = false;  // rows and columns have changed places
    std::size_t n_ = 0, spare_ = 0, matched_ = 0, ties_ = 0;
    double pair_price_ = infinity;
    const Kernels* kernels_ = nullptr;
    // least_: a bound from below of what an unmatched row would pay
    std::vector<double> price_, least_, lows_, zeros_, transposed_;
    std::vector<std::int32_t> mate_of_row_, mate_of_column_, free_rows_, stack_;
    std::unique_ptr<Assignment> half_;  // solves every other row and column
    std::vector<double> half_cost_, half_price_;

    // The search. Rows in the order in which they are reached, each with the distance and with its costs; all that were
    // reached together are scanned in one go. A column that is not yet reached has its key, the least cost so far but for
    // its own price, and as a mark the first of the few rows that it is from; its price is infinite once it is reached.
    // Heads are the columns that were reached one by one, in whose wake the branches of the trees were.
    struct Reach {
        double distance;
        std::int32_t row, column;
    };
    Trees trees_;
    std::vector<Reach> reached_;
    std::vector<CostRow> costs_;
    std::vector<std::int32_t> head_of_row_;
    std::vector<Head> heads_;
    std::vector<double> open_price_, keys_, marks_;
    double spare_price_ = 0, spare_key_ = 0, spare_mark_ = 0;  // the same of all spare columns
    std::size_t rows_ = 0, scanned_ = 0;  // reached, and of these scanned
    bool tied_ = false;        // so often that one row at a time is better, without trees: heads are told by their rows
    Nearest nearest_;          // of the columns not yet reached
    std::size_t leaver_ = 0;   // of the rows reached, the one for which it is cheapest to stay unmatched,
    double bound_ = infinity;  // and the distance at which it does
    std::size_t scans_ = 0;    // that may still be done
};

}  // namespace spadeful
