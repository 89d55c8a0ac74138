// Exact transport of one problem: weights to whole units, the choice of algorithm, units back to mass.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "assignment.hpp"
#include "forest.hpp"
#include "watch.hpp"
#include "whole.hpp"

namespace spadeful {

// Mass is counted in whole units, so that flows add up exactly and the algorithm always ends.
// One unit is below 1e-12 of the whole.
struct Units {
    std::vector<std::int64_t> supply, demand;
    std::int64_t total = 0;
    std::int64_t each = 0;  // what a point holds if the problem is square with uniform weights, else 0

    // a, b: weights (they are normalised here), or null for uniform ones.
    Units(std::size_t m, std::size_t n, const double* a, const double* b);
    std::int64_t of_mass(double mass) const;
    double mass(std::int64_t units) const { return static_cast<double>(units) / static_cast<double>(total); }
};

struct Entry {
    std::int32_t row, column;
    double mass;
};

struct Answer {
    std::vector<Entry> entries;  // by row, then column
    double value = 0;            // sum of cost times mass
    double price = 0;            // what one more unit of mass would cost
    std::vector<double> column_prices;
};

struct BadEntry {  // NaN, -inf, or finite but beyond 1e304
    std::size_t row, column;
    double value;
};

struct Infeasible {
    double mass;     // that was asked for
    double largest;  // that can be sent
};

struct Request {
    explicit Request(std::vector<double> masses, double ceiling = infinity, bool along_path = false);

    std::vector<double> masses;      // at least one
    std::vector<std::size_t> order;  // from the smallest to the largest
    double ceiling;                  // the highest price to pay for mass, of which less is sent then
    bool along_path;                 // only by the forest, whatever is quicker
    bool crowded = false;            // rows are likely to fight over few columns, as points in few dimensions do
};

class Solver {
public:
    // cost: m x n, row after row. Writes an answer for each mass. Throws BadEntry, Infeasible or Interrupted.
    void solve(const double* cost, std::size_t m, std::size_t n, const Units& units, const Request& request,
               Answer* answers, Watch& watch, Guess* guess = nullptr);

private:
    bool by_matchings(const double* cost, std::size_t n, const Units& units, const Request& request, Answer* answers,
                      Watch& watch, Guess* guess);
    Answer from_forest(const double* cost, const Units& units) const;

    WholePath whole_;
    Assignment assignment_;
    Forest forest_;
};

// Every mass at once.
struct Path {
    Path(const double* cost, std::size_t m, std::size_t n, const Units& units, Watch& watch);
    // The plan of a mass: all segments below it, and of the one it lies in the part.
    std::vector<Entry> entries(double mass) const;

    Units units;
    std::size_t rows, columns;
    std::vector<double> masses, values, prices;  // masses[0] = values[0] = 0; prices[k] from masses[k] to masses[k + 1]
    std::vector<Segment> segments;
    std::vector<Link> links;
};

// row_prices[i] = max(0, price - min_j (c_ij + column_prices[j])): with them the dual solution is feasible.
void row_prices(const double* cost, std::size_t m, std::size_t n, double price, const double* column_prices, double* out);

}  // namespace spadeful
