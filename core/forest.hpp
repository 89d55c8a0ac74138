// The mass path: optimal partial transport for every mass at once, with any weights.
//
// Partial transport is a minimum-cost flow from rows to columns. Let lambda be the price of the next unit. Rows
// that still have mass are the roots of a forest of tight edges, which grows as lambda rises. A column joins
// the forest when lambda reaches
//     key_j = beta_j + min over rows i of the forest of (c_ij + offset_i),
// where beta_j is its price and offset_i = lambda - p_i stays the same while row i is in the forest. If the
// column still has room, mass flows from the root to it; otherwise the rows that it is fed by join behind
// it. After a flow only the tree it went through falls apart: all others keep standing, and take over the rows
// that also feed columns of theirs. Since the forest
// always holds every row with mass left, each flow takes the cheapest path there is, so the plan is optimal
// at every mass on the way. Prices and plan are those of successive shortest paths (Ahuja, Magnanti and
// Orlin, Network Flows, 1993, section 9.7); the standing forest is what makes them cheap.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.hpp"
#include "watch.hpp"

namespace spadeful {

struct Flow {
    std::int32_t row;
    std::int32_t column;
    std::int64_t units;
};

// Which rows feed which columns, as linked lists by row and by column over one pool.
class Flows {
public:
    struct Link {
        std::int32_t row, column, next_in_row, next_in_column;
        std::int64_t units;
    };

    void reset(std::size_t rows, std::size_t columns);
    void add(std::int32_t row, std::int32_t column, std::int64_t units);  // units may be negative
    std::int64_t units(std::int32_t row, std::int32_t column) const;
    std::vector<Flow> list() const;  // by row, then column

    // Both lists end with -1.
    std::int32_t first_in_row(std::size_t row) const { return row_[row]; }
    std::int32_t first_in_column(std::size_t column) const { return column_[column]; }
    const Link& link(std::int32_t index) const { return pool_[static_cast<std::size_t>(index)]; }

private:
    Link& at(std::int32_t index) { return pool_[static_cast<std::size_t>(index)]; }

    std::vector<std::int32_t> row_, column_, unused_;
    std::vector<Link> pool_;
};

// One piece of the path: `units` more at `price` each, along `length` links (the first adds, the second takes
// away, and so on).
struct Segment {
    double price;
    double cost;
    std::int64_t units;
    std::int32_t first, length;
};

struct Link {
    std::int32_t row, column;
};

class Forest {
public:
    enum class Outcome { done, infeasible };

    struct Limits {
        std::int64_t target;        // units to have sent in all
        double ceiling = infinity;  // send none at a higher price than this
    };

    // cost: m x n, no NaN, no -inf; inf forbids a pair.
    void start(const double* cost, std::size_t m, std::size_t n, const std::vector<std::int64_t>& supply,
               const std::vector<std::int64_t>& demand);
    // Sends more, up to the target. `keep_path` records segments and links.
    Outcome grow(const Limits& limits, bool keep_path, Watch& watch);

    std::int64_t sent() const { return sent_; }
    double price() const { return lambda_; }
    void column_prices(double* out) const;
    const Flows& flows() const { return flows_; }

    std::vector<Segment> segments;
    std::vector<Link> links;

private:
    // Smallest of many keys that change one at a time.
    class Queue {
    public:
        void reset(std::size_t n);
        double operator[](std::size_t j) const { return key_[j]; }
        void lower(std::size_t j, double key);
        void set(std::size_t j, double key);
        double smallest() const;
        std::size_t find(double key) const;  // the first place of a key that is there

    private:
        std::vector<double> key_, block_;
        std::size_t n_ = 0;
    };

    void key(std::size_t j, double value);
    bool refresh(std::size_t j);
    void join(std::size_t j);
    void scan(std::size_t i);
    void send(std::size_t j, std::int64_t target, bool keep_path);
    void fell(std::size_t root);
    bool is_inside(std::size_t j) const;
    bool take_over(std::size_t i);

    const double* cost_ = nullptr;
    std::size_t m_ = 0, n_ = 0;
    const Kernels* kernels_ = nullptr;
    double lambda_ = 0;
    std::int64_t sent_ = 0;
    std::vector<double> transposed_;
    std::vector<std::int64_t> supply_, demand_;
    Flows flows_;
    // Columns: reach_ = min over forest rows of c_ij + offset_i (outside the forest a lower bound of it);
    // nearest_ is the row it was taken from; beta_ is stale while the column is in the forest.
    std::vector<double> reach_, beta_;
    std::vector<std::int32_t> nearest_;
    Queue open_, full_;  // keys of columns with room, and without; infinite in the forest
    // Rows: offset_ is infinite outside the forest, where p_ holds.
    std::vector<double> offset_, p_;
    std::vector<std::int32_t> root_, entry_;  // entry_: the column a row joined behind, -1 for a root
    // Members of each root's tree, as linked lists: the first of a tree, the next of a member, -1 at the end.
    std::vector<std::int32_t> first_row_, first_column_, next_row_, next_column_;
    std::vector<std::int32_t> hits_;
};

}  // namespace spadeful
