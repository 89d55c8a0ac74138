// Sweeps of entropic transport: every row's, then every column's potential to its optimum, in turn.
//
// The formulas are those of sweeps.py. The plan is exp(logs[i, j] + rows[i] + columns[j] + total). A matrix of it
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
    double mass = 0;  // of the whole plan where it is prescribed apart from the marginals, else 0
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
    // Moves the potentials of one problem, logs: m x n.
    Swept run(const double* logs, std::size_t m, std::size_t n, const SweepRule& rule, const Patience& patience,
              double* rows, double* columns, double* total, Watch& watch);

private:
    // One marginal: the potentials in the matrix, and the factors between them and those now.
    struct Half {
        const Side* side = nullptr;
        double* at = nullptr;
        std::size_t size = 0;
        std::vector<double> factors, weights, low, high;
        bool in_logs = false;  // whether a step needs logarithms, or just products

        void begin(const Side& side, double* at, std::size_t size);
        void bound(std::size_t i);
        double potential(std::size_t i) const;
        double log_potential(double log_sum, std::size_t i) const;
        bool far() const;
    };

    double sweep();
    double update(Half& half, std::size_t i, double sum);
    double update_vanished(Half& half, std::size_t i);
    double log_sum(const Half& half, std::size_t i) const;
    void translate();
    void absorb_potentials();
    void make_matrix();

    const double* logs_ = nullptr;
    const SweepRule* rule_ = nullptr;
    double* total_ = nullptr;
    double total_factor_ = 1;
    Half rows_, columns_;
    std::vector<double> matrix_;  // with rows of zeros up to a whole group
    std::vector<double> column_sums_;
};

// The plan of some potentials, m x n.
void exponentials(const double* logs, std::size_t m, std::size_t n, const double* rows, const double* columns,
                  double total, double* plan);

}  // namespace spadeful
