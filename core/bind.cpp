// Between Python and the solvers: reads arrays, shares a batch out over threads, turns failures into errors.
#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "distances.hpp"
#include "line.hpp"
#include "solver.hpp"
#include "sweeps.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace spadeful;

namespace {

using Array = nb::ndarray<nb::ro, nb::device::cpu>;
using Vector = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Clock = std::chrono::steady_clock;

// Asks Python for a waiting Ctrl-C; not more often than a person would notice.
class SignalWatch : public Watch {
public:
    bool stop() override {
        const auto now = Clock::now();
        if (now < next_) return false;
        next_ = now + std::chrono::milliseconds(20);
        nb::gil_scoped_acquire gil;
        interrupted_ = PyErr_CheckSignals() != 0;
        return interrupted_;
    }
    bool interrupted() const { return interrupted_; }

private:
    bool interrupted_ = false;
    Clock::time_point next_ = Clock::now() + std::chrono::milliseconds(20);
};

class FlagWatch : public Watch {
public:
    explicit FlagWatch(const std::atomic<bool>& flag) : flag_(flag) {}
    bool stop() override { return flag_.load(std::memory_order_relaxed); }

private:
    const std::atomic<bool>& flag_;
};

// One cost (m, n) or a batch (k, m, n), float64 or float32, of any strides. Problems are copied one at a time,
// and only those that do not already lie in memory as rows of doubles.
class Costs {
public:
    explicit Costs(const Array& array) : array_(array), batch_(array.ndim() == 3) {
        const bool single = array.dtype() == nb::dtype<float>();
        if (!single && array.dtype() != nb::dtype<double>()) throw nb::type_error("cost must be float32 or float64");
        if (array.ndim() != 2 && !batch_) throw nb::value_error("cost must have two or three dimensions");
        is_float_ = single;
        const std::size_t first = batch_ ? 1 : 0;
        count = batch_ ? array.shape(0) : 1;
        m = array.shape(first);
        n = array.shape(first + 1);
        row_stride_ = array.stride(first);
        column_stride_ = array.stride(first + 1);
        problem_stride_ = batch_ ? array.stride(0) : 0;
    }

    // What reads them, one a thread.
    auto reader(std::size_t) const {
        return [this, buffer = std::vector<double>()](std::size_t k) mutable { return read(k, buffer); };
    }

    const double* read(std::size_t k, std::vector<double>& buffer) const {
        if (is_float_) return copy(static_cast<const float*>(array_.data()), k, buffer);
        const auto* data = static_cast<const double*>(array_.data());
        const bool in_place = (n == 1 || column_stride_ == 1) && (m == 1 || row_stride_ == static_cast<std::int64_t>(n));
        return in_place ? data + static_cast<std::ptrdiff_t>(k) * problem_stride_ : copy(data, k, buffer);
    }

    std::size_t count = 1, m = 0, n = 0;
    bool batch() const { return batch_; }

private:
    template <class T>
    const double* copy(const T* data, std::size_t k, std::vector<double>& buffer) const {
        buffer.resize(m * n);
        data += static_cast<std::ptrdiff_t>(k) * problem_stride_;
        double* out = buffer.data();
        for (std::size_t i = 0; i < m; ++i)
            for (std::size_t j = 0; j < n; ++j)
                *out++ = data[static_cast<std::ptrdiff_t>(i) * row_stride_ + static_cast<std::ptrdiff_t>(j) * column_stride_];
        return buffer.data();
    }

    const Array& array_;
    bool batch_, is_float_ = false;
    std::int64_t row_stride_ = 0, column_stride_ = 0, problem_stride_ = 0;
};

const double* data_or_null(const std::optional<Vector>& v) { return v ? v->data() : nullptr; }

std::string text(double x) { return nb::cast<std::string>(nb::str(nb::float_(x))); }

// Runs f and gives its failures the words that a user needs. `where` names the problem of a batch.
template <class F>
void with_words(const std::string& where, F&& f) {
    try {
        f();
    } catch (const BadEntry& bad) {
        const std::string at = "[" + where + std::to_string(bad.row) + ", " + std::to_string(bad.column) + "]";
        const std::string rule = std::isfinite(bad.value) ? "cost must not exceed 1e304 in size"
                                                          : "cost must hold no NaN and no -inf (inf forbids a pair)";
        throw nb::value_error((rule + ". Got " + text(bad.value) + " at cost" + at + " instead.").c_str());
    } catch (const Infeasible& bad) {
        const std::string of = where.empty() ? "" : " for cost[" + where.substr(0, where.find(',')) + "]";
        throw nb::value_error(("The mass " + text(bad.mass) + " cannot be transported" + of +
                               ": the forbidden pairs (inf) leave room for at most " + text(bad.largest) +
                               ". Ask for at most that mass, or allow more pairs.").c_str());
    } catch (const Interrupted&) {
        throw nb::python_error();
    }
}

// The answers to one problem or a batch.
struct Answers {
    std::vector<Answer> each;
    std::size_t m = 0, n = 0;
    bool batch = false;
};

struct Failure {
    std::size_t problem;
    std::exception_ptr what;  // null if none
};

// Every thread takes the next problem that nobody has; which one solves it does not change the answer.
// make() gives each thread a worker of its own, called as worker(problem, watch).
template <class Make>
Failure share_out(std::size_t count, std::size_t threads, Make&& make) {
    std::atomic<std::size_t> next{0};
    std::atomic<bool> stop{false};
    std::mutex mutex;
    std::condition_variable ended;
    std::size_t working = threads = std::max<std::size_t>(std::min(threads, count), 1);
    Failure failure{count, nullptr};

    const auto work = [&](Watch& watch) {
        auto worker = make();
        for (std::size_t k; (k = next++) < count;) {
            try {
                watch.check();
                worker(k, watch);
            } catch (...) {
                // Problems are begun in order, so of several failures the first is found whatever the timing.
                const std::lock_guard lock(mutex);
                if (k < failure.problem) failure = {k, std::current_exception()};
                next = count;
            }
        }
        const std::lock_guard lock(mutex);
        --working;
        ended.notify_one();
    };

    std::vector<std::thread> team;
    for (std::size_t t = 1; t < threads; ++t)
        team.emplace_back([&] {
            FlagWatch watch(stop);
            work(watch);
        });
    SignalWatch watch;
    work(watch);
    bool interrupted = watch.interrupted();
    for (bool waiting = true; waiting;) {
        stop = interrupted = interrupted || watch.stop();
        std::unique_lock lock(mutex);
        waiting = !ended.wait_for(lock, std::chrono::milliseconds(20), [&] { return working == 0; });
    }
    for (std::thread& thread : team) thread.join();
    if (interrupted) return {0, std::make_exception_ptr(Interrupted{})};
    return failure;
}

// The same without the interpreter's lock, for workers that can only be interrupted.
template <class Make>
void share_out_quietly(std::size_t count, std::size_t threads, Make&& make) {
    with_words("", [&] {
        nb::gil_scoped_release release;
        if (const Failure failure = share_out(count, threads, make); failure.what) std::rethrow_exception(failure.what);
    });
}

// A solver kept by each thread saves small problems its set-up. It is taken while in use, so that a signal handler
// that solves something on the way gets another, and let go of after a large problem.
template <class T>
class Borrowed {
public:
    explicit Borrowed(std::size_t size) : keep_(size <= (1 << 18)), solver_(std::move(kept())) {
        if (!solver_) solver_ = std::make_unique<T>();
    }
    Borrowed(Borrowed&&) = default;
    ~Borrowed() {
        if (keep_ && solver_) kept() = std::move(solver_);
    }
    T* operator->() { return solver_.get(); }

private:
    static std::unique_ptr<T>& kept() {
        thread_local std::unique_ptr<T> solver;
        return solver;
    }

    bool keep_;
    std::unique_ptr<T> solver_;
};

// Problems that are read one at a time, each solved for every mass; the answers to one follow each other.
template <class Problems>
Answers solve_each(const Problems& problems, const Units& units, const Request& request, std::size_t threads) {
    if (request.masses.empty()) throw nb::value_error("there must be at least one mass");
    const std::size_t masses = request.masses.size();
    Answers answers{std::vector<Answer>(problems.count * masses), problems.m, problems.n, true};
    Failure failure;
    {
        nb::gil_scoped_release release;
        failure = share_out(problems.count, threads, [&] {
            return [&, solver = Solver(), read = problems.reader(threads)](std::size_t k, Watch& watch) mutable {
                solver.solve(read(k), problems.m, problems.n, units, request, &answers.each[k * masses], watch);
            };
        });
    }
    if (failure.what) with_words(std::to_string(failure.problem) + ", ", [&] { std::rethrow_exception(failure.what); });
    return answers;
}

Answers solve(const Array& cost, double mass, const std::optional<Vector>& a, const std::optional<Vector>& b,
              std::size_t threads, double ceiling, bool along_path) {
    const Request request({mass}, ceiling, along_path);
    const Costs costs(cost);
    const Units units(costs.m, costs.n, data_or_null(a), data_or_null(b));
    if (costs.batch()) return solve_each(costs, units, request, threads);
    Answers answers{std::vector<Answer>(1), costs.m, costs.n, false};
    with_words("", [&] {
        nb::gil_scoped_release release;
        Borrowed<Solver> solver(costs.m * costs.n);
        std::vector<double> buffer;
        SignalWatch watch;
        solver->solve(costs.read(0, buffer), costs.m, costs.n, units, request, answers.each.data(), watch);
    });
    return answers;
}

Answers solve_masses(const Array& cost, const std::vector<double>& masses, std::size_t threads) {
    const Costs costs(cost);
    if (!costs.batch()) throw nb::value_error("costs must have three dimensions");
    return solve_each(costs, Units(costs.m, costs.n, nullptr, nullptr), Request(masses), threads);
}

template <class T>
nb::ndarray<nb::numpy, T> to_numpy(std::vector<T>&& values, std::vector<std::size_t> shape) {
    auto owned = std::make_unique<std::vector<T>>(std::move(values));
    T* data = owned->data();
    nb::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), owner);
}

// (problem, row, column, mass) of every entry; of a single plan the problem is None.
nb::tuple to_triplets(const std::vector<const std::vector<Entry>*>& plans, bool batch) {
    std::size_t count = 0;
    for (const auto* entries : plans) count += entries->size();
    std::vector<std::int64_t> problems(batch ? count : 0), rows(count), columns(count);
    std::vector<double> masses(count);
    std::size_t at = 0;
    for (std::size_t k = 0; k < plans.size(); ++k)
        for (const Entry& e : *plans[k]) {
            if (batch) problems[at] = static_cast<std::int64_t>(k);
            rows[at] = e.row;
            columns[at] = e.column;
            masses[at++] = e.mass;
        }
    nb::object which = nb::none();
    if (batch) which = nb::cast(to_numpy(std::move(problems), {count}));
    return nb::make_tuple(which, to_numpy(std::move(rows), {count}), to_numpy(std::move(columns), {count}),
                          to_numpy(std::move(masses), {count}));
}

// The plans as matrices (k, m, n).
auto dense(const Answers& answers) {
    const std::size_t k = answers.each.size(), m = answers.m, n = answers.n;
    std::vector<double> values(k * m * n);
    for (std::size_t p = 0; p < k; ++p)
        for (const Entry& e : answers.each[p].entries)
            values[(p * m + static_cast<std::size_t>(e.row)) * n + static_cast<std::size_t>(e.column)] = e.mass;
    return to_numpy(std::move(values), {k, m, n});
}

nb::tuple triplets(const Answers& answers) {
    std::vector<const std::vector<Entry>*> plans;
    for (const Answer& answer : answers.each) plans.push_back(&answer.entries);
    return to_triplets(plans, answers.batch);
}

template <class F>
auto per_problem(const Answers& answers, F&& f) {
    std::vector<double> values;
    for (const Answer& answer : answers.each) values.push_back(f(answer));
    const std::size_t count = values.size();
    return to_numpy(std::move(values), {count});
}

auto column_prices(const Answers& answers) {
    std::vector<double> prices;
    prices.reserve(answers.each.size() * answers.n);
    for (const Answer& answer : answers.each)
        prices.insert(prices.end(), answer.column_prices.begin(), answer.column_prices.end());
    return to_numpy(std::move(prices), {answers.each.size(), answers.n});
}

// Row prices (k, m) that make the dual solution (prices, column prices) feasible for the costs.
auto certify(const Array& cost, const Vector& prices, const nb::ndarray<const double, nb::ndim<2>, nb::c_contig>& columns) {
    const Costs costs(cost);
    std::vector<double> rows(costs.count * costs.m), buffer;
    for (std::size_t k = 0; k < costs.count; ++k)
        row_prices(costs.read(k, buffer), costs.m, costs.n, prices.data()[k], columns.data() + k * costs.n,
                   rows.data() + k * costs.m);
    return to_numpy(std::move(rows), {costs.count, costs.m});
}

std::unique_ptr<Path> path(const Array& cost, const std::optional<Vector>& a, const std::optional<Vector>& b) {
    const Costs costs(cost);
    const Units units(costs.m, costs.n, data_or_null(a), data_or_null(b));
    std::unique_ptr<Path> result;
    with_words("", [&] {
        nb::gil_scoped_release release;
        std::vector<double> buffer;
        SignalWatch watch;
        result = std::make_unique<Path>(costs.read(0, buffer), costs.m, costs.n, units, watch);
    });
    return result;
}

using Batch = nb::ndarray<const double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Plans = nb::ndarray<double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using StepOf = std::tuple<double, double, double, double>;  // share, low, high, tau: see Side

void check_shapes(const Batch& costs, const Rows& rows, const Rows& columns, const Numbers& totals) {
    const std::size_t k = costs.shape(0), m = costs.shape(1), n = costs.shape(2);
    if (rows.shape(0) != k || rows.shape(1) != m || columns.shape(0) != k || columns.shape(1) != n || totals.shape(0) != k)
        throw nb::value_error("the potentials must have the shapes (k, m), (k, n) and (k,) of the costs");
}

// Potentials are moved in place; returns the sweeps made and the errors left.
nb::tuple sweeps(const Batch& costs, double reg, bool of_product, const Rows& rows, const Rows& columns,
                 const Numbers& totals, const Vector& log_a, const Vector& log_b, const StepOf& row_step,
                 const StepOf& column_step, double mass, double tol, std::size_t most, double worth, std::size_t threads) {
    check_shapes(costs, rows, columns, totals);
    const std::size_t k = costs.shape(0), m = costs.shape(1), n = costs.shape(2);
    if (log_a.shape(0) != m || log_b.shape(0) != n) throw nb::value_error("the weights must have the shapes (m,) and (n,)");
    const auto side = [](const Vector& log_weights, const StepOf& step) {
        const auto [share, low, high, tau] = step;
        return Side{log_weights.data(), share, low, high, tau};
    };
    const SweepRule rule{side(log_a, row_step), side(log_b, column_step), mass, of_product};
    const Patience patience{tol, most, worth};
    std::vector<std::int64_t> counts(k);
    std::vector<double> errors(k);
    share_out_quietly(k, threads, [&] {
        return [&, sweeper = Borrowed<Sweeper>(m * n)](std::size_t p, Watch& watch) mutable {
            const Swept swept = sweeper->run({costs.data() + p * m * n, reg}, m, n, rule, patience, rows.data() + p * m,
                                             columns.data() + p * n, totals.data() + p, watch);
            counts[p] = static_cast<std::int64_t>(swept.count);
            errors[p] = swept.error;
        };
    });
    return nb::make_tuple(to_numpy(std::move(counts), {k}), to_numpy(std::move(errors), {k}));
}

// Writes the plans of some potentials (k, m, n); returns their masses.
auto plans(const Batch& costs, double reg, const Rows& rows, const Rows& columns, const Numbers& totals,
           const Plans& out, std::size_t threads) {
    check_shapes(costs, rows, columns, totals);
    const std::size_t k = costs.shape(0), m = costs.shape(1), n = costs.shape(2);
    if (out.shape(0) != k || out.shape(1) != m || out.shape(2) != n)
        throw nb::value_error("the plans must have the shape (k, m, n) of the costs");
    std::vector<double> masses(k);
    share_out_quietly(k, threads, [&] {
        return [&](std::size_t p, Watch&) {
            masses[p] = exponentials({costs.data() + p * m * n, reg}, m, n, rows.data() + p * m, columns.data() + p * n,
                                     totals.data()[p], out.data() + p * m * n);
        };
    });
    return to_numpy(std::move(masses), {k});
}

void round_plans(const Plans& plans, const Vector& a, const Vector& b, double mass, bool fill, std::size_t threads) {
    const std::size_t k = plans.shape(0), m = plans.shape(1), n = plans.shape(2);
    if (a.shape(0) != m || b.shape(0) != n) throw nb::value_error("the weights must have the shapes (m,) and (n,)");
    share_out_quietly(k, threads, [&] {
        return [&](std::size_t p, Watch&) {
            make_feasible(plans.data() + p * m * n, m, n, a.data(), b.data(), mass, fill);
        };
    });
}

Points points_of(const Array& array) {
    const bool single = array.dtype() == nb::dtype<float>();
    if (array.ndim() != 2 || (!single && array.dtype() != nb::dtype<double>()))
        throw nb::type_error("points must be a matrix of float32 or float64");
    return Points{array.data(), single, array.shape(1), array.stride(0), array.stride(1)};
}

using Which = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A pair of batches holds a point that is not finite, or beyond 1e150.
struct BadPair : std::runtime_error {
    explicit BadPair(std::size_t pair) : std::runtime_error(std::to_string(pair)) {}
};

// Pairs of batches of points, measured one at a time.
class Pairs {
public:
    Pairs(const Array& x, const Array& y, const Which& rows, const Which& columns, const std::string& metric)
        : count(rows.shape(0)), m(rows.shape(1)), n(columns.shape(1)), x_(x), y_(y), rows_(rows), columns_(columns),
          from_(points_of(x)), to_(points_of(y)),
          metric_(metric == "euclidean" ? Metric::euclidean : metric == "cosine" ? Metric::cosine : Metric::squared_euclidean) {
        if (columns.shape(0) != count || from_.dimension != to_.dimension)
            throw nb::value_error("points and batches must have shapes that fit");
        for (const auto& [which, points] : {std::pair(&rows, x.shape(0)), std::pair(&columns, y.shape(0))})
            for (std::size_t i = 0; i < which->size(); ++i)
                if (which->data()[i] < 0 || which->data()[i] >= static_cast<std::int64_t>(points))
                    throw nb::index_error("a batch names a point that is not there");
    }

    void measure(std::size_t k, std::size_t threads, Distances& work, double* cost) const {
        const std::size_t then = k + threads;  // most likely this thread's next
        const bool good = work.measure(from_, rows_.data() + k * m, m, to_, columns_.data() + k * n, n, metric_, cost,
                                       then < count ? rows_.data() + then * m : nullptr,
                                       then < count ? columns_.data() + then * n : nullptr);
        if (!good) throw BadPair(k);
    }

    // What measures them, one a thread: the costs stay in its cache while they are solved.
    auto reader(std::size_t threads) const {
        return [this, threads, work = Distances(), cost = std::vector<double>(m * n)](std::size_t k) mutable {
            measure(k, threads, work, cost.data());
            return static_cast<const double*>(cost.data());
        };
    }

    std::size_t count, m, n;

private:
    Array x_, y_;  // kept while they are read
    Which rows_, columns_;
    Points from_, to_;
    Metric metric_;
};

void measure_pairs(const Pairs& pairs, const Plans& out, std::size_t threads) {
    if (out.shape(0) != pairs.count || out.shape(1) != pairs.m || out.shape(2) != pairs.n)
        throw nb::value_error("the costs must have the shape (k, m, n) of the batches");
    share_out_quietly(pairs.count, threads, [&] {
        return [&, work = Distances()](std::size_t k, Watch&) mutable {
            pairs.measure(k, threads, work, out.data() + k * pairs.m * pairs.n);
        };
    });
}

Answers solve_pairs(const Pairs& pairs, const std::vector<double>& masses, std::size_t threads) {
    return solve_each(pairs, Units(pairs.m, pairs.n, nullptr, nullptr), Request(masses), threads);
}

using Lines = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Power power_of(int p) {
    if (p != 1 && p != 2) throw nb::value_error("p must be 1 or 2");
    return p == 1 ? Power::one : Power::two;
}

// Partial transport on each of some lines: plans, values and their gradients in the points, the plans held fixed.
struct LineAnswers {
    std::vector<std::vector<Entry>> plans;
    std::vector<double> values, x_gradients, y_gradients;
    std::size_t m, n;
};

LineAnswers lines(const Lines& x, const Lines& y, double mass, int p, std::size_t threads) {
    const std::size_t count = x.shape(0), m = x.shape(1), n = y.shape(1);
    if (y.shape(0) != count || m == 0 || n == 0) throw nb::value_error("x and y must have the shapes (k, m) and (k, n)");
    const Power power = power_of(p);
    const std::size_t all = std::lcm(m, n);  // points repeated so often that both sides hold as many, of one weight
    const Units units(all, all, nullptr, nullptr);
    const std::int64_t target = units.of_mass(mass);
    const auto pairs = static_cast<std::size_t>(target / units.each);
    const double rest = static_cast<double>(target % units.each) / static_cast<double>(units.each);
    LineAnswers answers{std::vector<std::vector<Entry>>(count), std::vector<double>(count),
                        std::vector<double>(count * m), std::vector<double>(count * n), m, n};
    share_out_quietly(count, threads, [&] {
        return [&, line = Line(power)](std::size_t k, Watch& watch) mutable {
            const double *from = x.data() + k * m, *to = y.data() + k * n;
            line.place(from, m, all / m, to, n, all / n);
            answers.plans[k] = line.plan(pairs, rest, units.mass(units.each), watch);
            double* from_gradient = answers.x_gradients.data() + k * m;
            double* to_gradient = answers.y_gradients.data() + k * n;
            for (const Entry& e : answers.plans[k]) {
                const double way = from[e.row] - to[e.column];
                const double slope = power == Power::two ? 2 * way : static_cast<double>((way > 0) - (way < 0));
                answers.values[k] += e.mass * (power == Power::two ? way * way : std::abs(way));
                from_gradient[e.row] += e.mass * slope;
                to_gradient[e.column] -= e.mass * slope;
            }
        };
    });
    return answers;
}

// For points of unit weight: what each further pair costs, and the x and the y that it takes in.
nb::tuple line_path(const Vector& x, const Vector& y, int p) {
    Line line(power_of(p));
    std::vector<LineStep> steps;
    with_words("", [&] {
        nb::gil_scoped_release release;
        SignalWatch watch;
        line.place(x.data(), x.shape(0), 1, y.data(), y.shape(0), 1);
        steps = line.path(watch);
    });
    const std::size_t count = steps.size();
    std::vector<double> prices(count);
    std::vector<std::int64_t> rows(count), columns(count);
    for (std::size_t k = 0; k < count; ++k) {
        prices[k] = steps[k].price;
        rows[k] = steps[k].row;
        columns[k] = steps[k].column;
    }
    return nb::make_tuple(to_numpy(std::move(prices), {count}), to_numpy(std::move(rows), {count}),
                          to_numpy(std::move(columns), {count}));
}

auto copy_of(const std::vector<double>& values) {
    return to_numpy(std::vector<double>(values), {values.size()});
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "The compiled core of spadeful.";

    const auto fresh = nb::rv_policy::automatic;  // every array handed out owns its memory
    nb::class_<Answers>(m, "Answers", "Optimal plans of one problem or a batch, with a dual solution.")
        .def_prop_ro("triplets", &triplets, fresh, "problem, row, column and mass of every entry")
        .def_prop_ro("dense", &dense, fresh, "the plans as matrices (k, m, n)")
        .def_prop_ro("values", [](const Answers& a) { return per_problem(a, [](const Answer& x) { return x.value; }); }, fresh)
        .def_prop_ro("prices", [](const Answers& a) { return per_problem(a, [](const Answer& x) { return x.price; }); }, fresh)
        .def_prop_ro("column_prices", &column_prices, fresh);

    nb::class_<Path>(m, "Path", "Optimal plans of every mass.")
        .def_prop_ro("masses", [](const Path& p) { return copy_of(p.masses); }, fresh)
        .def_prop_ro("values", [](const Path& p) { return copy_of(p.values); }, fresh)
        .def_prop_ro("prices", [](const Path& p) { return copy_of(p.prices); }, fresh)
        .def("triplets", [](const Path& p, double mass) {
            const std::vector<Entry> entries = p.entries(mass);
            return to_triplets({&entries}, false);
        }, "mass"_a);

    m.def("solve", &solve, "cost"_a, "mass"_a, "a"_a.none(), "b"_a.none(), "threads"_a, "ceiling"_a = infinity,
          "along_path"_a = false,
          "Solve one cost (m, n) or a batch (k, m, n) exactly, as far as the price of mass stays below the ceiling; "
          "along the mass path, or by whatever is quickest.");
    m.def("path", &path, "cost"_a, "a"_a.none(), "b"_a.none(), "Solve for every mass.");
    m.def("certify", &certify, "cost"_a, "prices"_a, "column_prices"_a, "Row prices of a feasible dual solution.");
    m.def("sweeps", &sweeps, "costs"_a, "reg"_a, "of_product"_a, "rows"_a, "columns"_a, "totals"_a, "log_a"_a, "log_b"_a, "row_step"_a,
          "column_step"_a, "mass"_a, "tol"_a, "most"_a, "worth"_a, "threads"_a,
          "Sweep each problem of a batch until it has converged or more than `worth` sweeps are in sight; moves the "
          "potentials, returns sweeps and errors. A step is (share, low, high, tau).");
    m.def("plans", &plans, "costs"_a, "reg"_a, "rows"_a, "columns"_a, "totals"_a, "out"_a, "threads"_a,
          fresh, "Write exp(-costs / reg + rows + columns + totals), and return the sums.");
    m.def("round_plans", &round_plans, "plans"_a, "a"_a, "b"_a, "mass"_a, "fill"_a, "threads"_a,
          "Make plans feasible in place: rows at most a, columns at most b, of that mass if any pair may be filled.");
    m.def("solve_masses", &solve_masses, "costs"_a, "masses"_a, "threads"_a,
          "Solve each of a batch (k, m, n) for each of some masses: k times as many answers.");
    nb::exception<BadPair>(m, "BadPair");
    nb::class_<Pairs>(m, "Pairs", "Pairs of batches of points; the metric is 'sqeuclidean', 'euclidean' or 'cosine'.")
        .def(nb::init<const Array&, const Array&, const Which&, const Which&, const std::string&>(), "x"_a, "y"_a,
             "rows"_a, "columns"_a, "metric"_a)
        .def("measure", &measure_pairs, "out"_a, "threads"_a,
             "Write the costs (k, m, n). Raises BadPair with the number of the first that holds a point not finite.")
        .def("solve", &solve_pairs, "masses"_a, "threads"_a, "The same as solve_masses of the costs, without storing them.");
    nb::class_<LineAnswers>(m, "LineAnswers", "Optimal partial plans on each of some lines.")
        .def_prop_ro("values", [](const LineAnswers& a) { return copy_of(a.values); }, fresh)
        .def_prop_ro("triplets", [](const LineAnswers& a) {
            std::vector<const std::vector<Entry>*> plans;
            for (const auto& plan : a.plans) plans.push_back(&plan);
            return to_triplets(plans, true);
        }, fresh, "line, row, column and mass of every entry")
        .def_prop_ro("gradients", [](const LineAnswers& a) {
            return nb::make_tuple(to_numpy(std::vector<double>(a.x_gradients), {a.plans.size(), a.m}),
                                  to_numpy(std::vector<double>(a.y_gradients), {a.plans.size(), a.n}));
        }, fresh, "of the values in the points (k, m) and (k, n), the plans held fixed");
    m.def("lines", &lines, "x"_a, "y"_a, "mass"_a, "p"_a, "threads"_a,
          "Partial transport of a mass between the points of k lines, x (k, m) and y (k, n), for the cost |x - y|^p.");
    m.def("line_path", &line_path, "x"_a, "y"_a, "p"_a,
          "Every number of pairs of points on one line: prices of the pairs, and the x and y that each takes in.");
    m.def("simd_level", [] { return std::string(kernels().name); }, "The instruction set in use.");
    m.def("choose_simd_level", [](const std::string& name) { return choose_kernels(name.c_str()); }, "name"_a,
          "Use 'scalar', 'avx2', 'avx512' or 'best'; false if this machine has no such level.");
}
