// Sweeps of entropic transport: every row's, then every column's potential to its optimum, in turn.
//
// The formulas are those of sweeps.py. The plan is exp(-cost[i, j] / reg + rows[i] + columns[j] + total), times the
// weights where the entropy is taken against their product. A matrix of it
// is kept at potentials that were absorbed into it; beside those a sweep moves factors only, and it passes over
// the matrix once: a row's sum gives its factor, which goes into the columns' sums while the row is in the cache.
#pragma once
#include <cstddef>
#include <vector>

#include "kernels.hpp"
#include "watch.hpp"

namespace spadeful {

// A sweep sets potential = clip(share * (log weight - log sum), low, high).
struct Side {
    const double* log_weights;
    double share, low, high;
    double tau = 0;  // where the best constant is to be moved from columns to rows: the penalty, else 0
};

struct SweepRule {
    Side rows, columns;
    double mass = 0;          // of the whole plan where it is prescribed apart from the marginals, else 0
    bool of_product = false;  // whether the entropy is taken against the product of the weights
};

struct Exponents {
    const double* cost;  // m x n
    double reg;
};

// Stop at an error, after so many sweeps, or where more than `worth` further ones are in sight.
struct Patience {
    double tol;
    std::size_t sweeps;
    double worth;
};

struct Swept {
    std::size_t count = 0;
    double error = infinity;  // the share of mass that the last sweep found misplaced
};

class Sweeper {
public:
    // Moves the potentials of one problem.
    Swept run(const Exponents& exponents, std::size_t m, std::size_t n, const SweepRule& rule, const Patience& patience,
              double* rows, double* columns, double* total, Watch& watch);

private:
    // One marginal: the potentials in the matrix, and the factors between them and those now.
    struct Half {
        const Side* side = nullptr;
        double* at = nullptr;
        std::size_t size = 0;
        std::vector<double> factors, sums, moved, weights, low, high;
        bool in_logs = false;  // whether a step needs logarithms, or just products
        std::vector<double> potentials, next;  // kept where it does

        void begin(const Side& side, double* at, std::size_t size);
        void bound(std::size_t i);
        bool vanished(std::size_t i) const;
        double potential(std::size_t i) const;
        double log_potential(double log_sum, std::size_t i) const;
        bool far() const;
    };

    double sweep();
    double update(Half& half, std::size_t first, std::size_t last);
    double update_vanished(Half& half, std::size_t i);
    double log_sum(const Half& half, std::size_t i) const;
    double offset(const Half& half, std::size_t i) const { return rule_->of_product ? half.side->log_weights[i] : 0.0; }
    void translate();
    void absorb_potentials();
    void make_row(std::size_t i);
    void make_matrix();

    Exponents exponents_{};
    const SweepRule* rule_ = nullptr;
    double* total_ = nullptr;
    double total_factor_ = 1;
    Half rows_, columns_;
    std::vector<double> matrix_;  // with rows of zeros up to a whole group
    std::vector<double> column_shifts_;
};

// The plan of some potentials, m x n: exp(-cost / reg + rows + columns + total). Returns its mass.
double exponentials(const Exponents& exponents, std::size_t m, std::size_t n, const double* rows, const double* columns,
                  double total, double* plan);

// Makes a plan feasible: rows at most a, columns at most b, and of that mass if any pair may be filled. The formulas
// are those of entropic.rounded.
void make_feasible(double* plan, std::size_t m, std::size_t n, const double* a, const double* b, double mass, bool fill);

}  // namespace spadeful
