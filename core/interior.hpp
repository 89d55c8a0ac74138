// Unbalanced transport with Kullback-Leibler penalties, without an entropy: a primal-dual interior-point method.
//
// The dual problem maximises -tau_a <a, exp(-f / tau_a) - 1> - tau_b <b, exp(-g / tau_b) - 1> under f_i + g_j <= C_ij. Its
// optimum has a plan with the marginals a exp(-f / tau_a) and b exp(-g / tau_b) that is 0 wherever the slack C_ij - f_i - g_j
// is not. Newton steps follow plan times slack = mu towards 0; the potentials stay feasible, so that the gap is
// certified at any time.
//
// Eliminated from a step, the plan leaves a system for the potentials whose matrix, in -f and g, has nothing positive beside
// its diagonal, and rows with sums above 0. Such a system is solved without a single subtraction, and so to nearly all digits
// however badly it is conditioned, if sums of rows are carried along in place of the diagonal (Alfa, Xue and Ye, Mathematics
// of Computation 71, 2002).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.hpp"
#include "solver.hpp"
#include "watch.hpp"

namespace spadeful {

class Interior {
public:
    struct Side {
        const double* weights;
        double tau;
        std::size_t size;
    };
    // cost: rows after rows, inf forbids a pair. Returns a plan, row after row, and writes the potentials of both sides.
    std::vector<Entry> solve(const double* cost, const Side& rows, const Side& columns, double* row_potentials,
                             double* column_potentials, Watch& watch);

private:
    // One side of what is solved: the points that have some weight and some pair.
    struct Points {
        double tau;
        std::vector<std::size_t> which;
        std::vector<double> weight, potential, mass, change, step;

        void take(const Side& side, double unit);
        // What a point adds to the dual objective, the logarithm of its mass over what its potential asks for, and what that
        // adds to the gap.
        double dual(std::size_t k) const;
        double beyond(std::size_t k) const;
        double gap(std::size_t k) const;
    };

    std::vector<Entry> solve_tall(const double* cost, const Side& rows, const Side& columns, double* row_potentials,
                                  double* column_potentials, Watch& watch);
    std::size_t at(std::size_t i, std::size_t j) const { return i * columns_.which.size() + j; }
    double* node(std::size_t t) { return nodes_.data() + t * stride_; }
    void start();
    void lift_light_points();
    void find_steps(Watch& watch);
    void eliminate(std::size_t k);
    void advance();
    void add_up();
    std::vector<Entry> entries() const;
    bool optimal();
    void take_best();

    Points rows_, columns_;
    std::vector<double> transposed_, cost_, slack_, inverse_slack_, plan_, step_;
    // Rows, then columns, in the order in which they are eliminated. Each has what it is tied to the columns by, that still
    // wait; the sum of its row of the matrix; and the right-hand side.
    std::vector<double> nodes_, pivot_, by_;
    std::size_t stride_ = 0, pairs_ = 0;
    struct Best {
        double gap = infinity;
        std::vector<double> plan, slack, rows, columns;
    } best_;
    double size_ = 0, total_ = 0, mu_ = 0;
};

}  // namespace spadeful
