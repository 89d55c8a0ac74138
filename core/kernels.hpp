// The few loops that all the time goes into, each compiled once per instruction set.
//
// Every kernel does the same additions and comparisons on the same numbers whatever the width of the
// registers, and ties go to the lowest index, so results are bitwise the same at every level.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>

namespace spadeful {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Long arrays keep a minimum for each block of so many entries.
constexpr std::size_t block_size = 64;

constexpr std::size_t blocks(std::size_t n) { return (n + block_size - 1) / block_size; }

// Rows that are multiplied by a vector in one go.
constexpr std::size_t row_group = 4;

// Rows that are relaxed in one go, which have one mark.
constexpr std::size_t relaxed_rows = 4;

// Points stand in panels of so many, coordinate by coordinate, to be measured from one point together; likewise rows that are
// combined.
constexpr std::size_t panel_width = 16;

// The smallest sum, where it first stands, and the smallest of the others.
struct BestTwo {
    double first = infinity;
    double second = infinity;
    std::ptrdiff_t index = -1;
};

// The smallest distance, and where it first stands.
struct Nearest {
    double distance = infinity;
    std::ptrdiff_t index = -1;
};

// A row of costs, and what is to be added to each.
struct CostRow {
    const double* x;
    double shift;
};

// A search of `WholePath`. Costs, prices and distances are times 128; the lower seven bits of what is compared name the
// column. Arrays go on to a whole panel, where costs are `beyond`.
struct WholeSearch {
    static constexpr std::size_t columns = 128;
    static constexpr std::int32_t beyond = 1 << 30;

    std::size_t panels = 0;  // of columns
    alignas(64) std::int32_t low[columns];       // the least cost of an unmatched row
    alignas(64) std::int32_t price[columns];
    alignas(64) std::int32_t pays[columns];      // cost and price, what the row pays that has it
    alignas(64) std::int32_t open[columns];      // the price until it is reached, then `beyond`
    alignas(64) std::int32_t distance[columns];  // once it is reached, else `beyond`
    alignas(64) std::int32_t before[columns];    // the column whose row it was last reached from; -1 for an unmatched row
    const std::int32_t* row[columns];            // the costs of the row that has it; null if there is none
};

struct Kernels {
    const char* name;
    // best two of x[j] + y[j], j < n
    BestTwo (*best_two)(const double* x, const double* y, std::size_t n);
    // keys[j] = min(keys[j], x[j] + shift) of one group of rows after the other, and where that made it less marks[j] = mark,
    // or mark plus the number of the group's first row, j < n; returns the nearest keys[j] + y[j]. There is at least one row.
    Nearest (*relax)(const CostRow* rows, std::size_t count, const double* y, double mark, double* keys, double* marks,
                     std::size_t n);
    // first index >= from with x[index] == value, or n
    std::size_t (*find)(const double* x, double value, std::size_t from, std::size_t n);
    // first index >= from with x[index] + y[index] == value, or n
    std::size_t (*find_sum)(const double* x, const double* y, double value, std::size_t from, std::size_t n);
    // writes the indices with x[j] + shift < bound[j] to hits; returns how many
    std::size_t (*below)(const double* x, double shift, const double* bound, std::int32_t* hits, std::size_t n);
    double (*minimum)(const double* x, std::size_t n);
    // low[j] = min(low[j], x[j]); false if an x is not finite, or beyond about 1e304
    bool (*fold_minimum)(const double* x, double* low, std::size_t n);
    // price[j] = max(price[j], gives - x[j]), j < n
    void (*outbid)(const double* x, double gives, double* price, std::size_t n);
    // out[j] = exp(x[j] scale + y[j] + shift), to a few units in the last place; 0 below 1e-307, and
    // at most exp(709)
    void (*exponentials)(const double* x, double scale, const double* y, double shift, double* out, std::size_t n);
    // out[r] = sum of x[r n + j] y[j] over j < n, for rows r = 0, 1, ..., row_group - 1
    void (*dots)(const double* x, const double* y, double* out, std::size_t n);
    // sums[j] += sum of x[r n + j] scale[r] over the rows r of a group
    void (*add_rows)(const double* x, const double* scale, double* sums, std::size_t n);
    // out[r stride + j] += sum of x[t stride + j] by[t row_group + r] over t < count, for the rows r of a group; n is whole
    // panels
    void (*combine)(const double* x, const double* by, std::size_t count, double* out, std::size_t stride, std::size_t n);
    // out[r n + j] = squared distance of the r-th x (stride apart) from the j-th of n points in panels, all of
    // dimension d, for r = 0 and, if there are two rows, 1; or += instead of =
    void (*squared_distances)(const double* x, std::size_t stride, std::size_t rows, const double* panels, bool add,
                              double* out, std::size_t d, std::size_t n);
    // out[j] = x[j], and least and most take it in; false if an x is not a whole number of 32 bits
    bool (*read_whole)(const double* x, std::int32_t* out, std::int32_t& least, std::int32_t& most, std::size_t n);
    // low[j] = the least x[j] of some rows, or `beyond`, over whole panels
    void (*fold_whole)(const std::int32_t* const* rows, std::size_t count, std::int32_t* low, std::size_t panels);
    // Dijkstra from all unmatched rows: the distance of the nearest free column, which its lower bits name
    std::int32_t (*search_whole)(WholeSearch& search);
    // raises the prices of the columns that were reached up to a distance
    void (*raise_whole)(WholeSearch& search, std::int32_t distance);
};

// The table in use: the best that the processor has, unless choose_kernels() named another; and the best for searches
// along rows of so many entries, of which short ones want narrow registers.
const Kernels& kernels();
const Kernels& kernels(std::size_t n);
// Returns false if this processor or build has no such level.
bool choose_kernels(const char* name);

}  // namespace spadeful
