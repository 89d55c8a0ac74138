// Partial transport on the line, between points of equal weight, for every number of pairs.
//
// No pair of an optimal plan has a free point between its two: that point would do at less cost. So in the order of
// all points, what lies between two neighbouring free points is matched within itself, as many x as y, the first x with
// the first y and so on. Optimal sets of active points are nested (augmenting paths free no point), so the next set takes
// in two neighbouring free points, an x and a y: else something between free points would not balance. A heap finds
// the cheapest two; what they add to the cost depends on the points between them alone.
//
// |x - y|: that cost is the difference of two sums, in O(1), so every number of pairs takes O(N log N) for N points.
// |x - y|^2: it is a sum over the points between, so O(N log N + N * longest run of active points), at worst O(N^2). Of
// points of one distribution most runs are short. Where a run can grow in only one place, and no prices
// are wanted, the sum is not needed.
//
// Nested sets and neighbours: Bonneel and Coeurjolly (2019), Chapel and Tavenard (2025).
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "solver.hpp"
#include "watch.hpp"

namespace spadeful {

enum class Power { one, two };

// An x and a y become active: their places among the points of their side, and what that adds to the cost.
struct LineStep {
    std::int32_t row, column;
    double price;
};

class Line {
public:
    explicit Line(Power power) : power_(power) {}

    // Sorts the points. Each counts as so many of unit weight, all in one place.
    void place(const double* x, std::size_t m, std::size_t x_times, const double* y, std::size_t n, std::size_t y_times);

    // Every number of pairs.
    std::vector<LineStep> path(Watch& watch);

    // The optimal plan of all the mass, 1 on each side: the points of a side weigh the same, be they as many or not.
    std::vector<Entry> whole() const;

    // The optimal plan of so many pairs, and of the rest, a part of one, each pair weighing `mass`. By place on the line.
    std::vector<Entry> plan(std::size_t pairs, double rest, double mass, Watch& watch);

private:
    struct Candidate {
        double price;  // at least: what was paid last, if not known
        std::int32_t left, right;
        bool known;
    };
    struct Later {
        bool operator()(const Candidate& a, const Candidate& b) const {
            return a.price != b.price ? a.price > b.price : a.left > b.left;
        }
    };
    struct Pair {  // of places in the order of their side
        std::int32_t x, y;
        bool operator==(const Pair& other) const { return x == other.x && y == other.y; }
        bool operator<(const Pair& other) const { return x != other.x ? x < other.x : y < other.y; }
    };

    void start();
    bool step(bool want_price, Candidate& found);  // false if all points of a side are active
    void offer(std::int32_t left, std::int32_t right, double paid);
    double price(std::int32_t left, std::int32_t right) const;
    std::vector<Pair> pairs() const;

    Power power_;
    std::vector<std::pair<double, std::int32_t>> order_;
    std::vector<double> x_, y_;              // in order
    std::vector<std::int32_t> row_, column_;  // which points they are
    // Of all points in order: where, on which side, how many of its side come before.
    std::vector<double> at_;
    std::vector<char> is_x_;
    std::vector<std::int32_t> rank_;
    std::vector<char> active_;
    std::vector<std::int32_t> before_, after_;  // the free neighbours
    std::vector<double> sums_;                  // see price()
    std::vector<Candidate> heap_;
};

}  // namespace spadeful
