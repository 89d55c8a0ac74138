// Exact transport of costs and of pairs of batches of points.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind.hpp"
#include "distances.hpp"
#include "interior.hpp"
#include "precedent.hpp"

namespace spadeful {

using namespace nb::literals;

namespace {

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
    struct Reader {
        const double* read(std::size_t k) { return costs.read(k, buffer); }
        Guess* guess(std::size_t, Watch&) const { return nullptr; }

        const Costs& costs;
        std::vector<double> buffer{};
    };
    Reader reader(std::size_t) const { return {*this}; }

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

// The answers to one problem or a batch.
struct Answers {
    std::vector<Answer> each;
    std::size_t m = 0, n = 0;
    bool batch = false;
};

// Problems that are read one at a time, each solved for every mass; the answers for one mass follow each other.
template <class Problems>
Answers solve_each(const Problems& problems, const Units& units, const Request& request, std::size_t threads) {
    if (request.masses.empty()) throw nb::value_error("there must be at least one mass");
    const std::size_t masses = request.masses.size();
    Answers answers{std::vector<Answer>(problems.count * masses), problems.m, problems.n, true};
    Failure failure;
    {
        nb::gil_scoped_release release;
        failure = share_out(problems.count, threads, [&] {
            return [&, solver = Solver(), reader = problems.reader(threads), own = std::vector<Answer>(masses)](
                       std::size_t k, Watch& watch) mutable {
                solver.solve(reader.read(k), problems.m, problems.n, units, request, own.data(), watch,
                             reader.guess(k, watch));
                for (std::size_t s = 0; s < masses; ++s) answers.each[s * problems.count + k] = std::move(own[s]);
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

Answers solve_masses(const Array& cost, const std::vector<double>& masses, std::size_t threads, bool crowded) {
    const Costs costs(cost);
    if (!costs.batch()) throw nb::value_error("costs must have three dimensions");
    Request request(masses);
    request.crowded = crowded;
    return solve_each(costs, Units(costs.m, costs.n, nullptr, nullptr), request, threads);
}

// Triplets of the plans, and the potentials (k, m) and (k, n), of unbalanced transport.
nb::tuple solve_unbalanced(const Array& cost, const Vector& a, const Vector& b, double tau_a, double tau_b, std::size_t threads) {
    const Costs costs(cost);
    const std::size_t k = costs.count, m = costs.m, n = costs.n;
    if (a.size() != m || b.size() != n) throw nb::value_error("there must be as many weights as rows and columns");
    std::vector<double> rows(k * m), columns(k * n);
    std::vector<std::vector<Entry>> plans(k);
    share_out_quietly(k, threads, [&] {
        return [&, interior = Interior(), reader = costs.reader(threads)](std::size_t p, Watch& watch) mutable {
            plans[p] = interior.solve(reader.read(p), {a.data(), tau_a, m}, {b.data(), tau_b, n}, &rows[p * m],
                                      &columns[p * n], watch);
        };
    });
    std::vector<const std::vector<Entry>*> each;
    for (const auto& plan : plans) each.push_back(&plan);
    return nb::make_tuple(to_triplets(each, costs.batch()), to_numpy(std::move(rows), {k, m}), to_numpy(std::move(columns), {k, n}));
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

    // The first two of many pairs, for the others to begin with.
    void set_precedent(double mass) {
        if (m == n && count >= many)
            precedent_ = std::make_unique<Precedent>(from_, rows_.data(), to_, columns_.data(), 2 * m, metric_, mass);
    }

    // What measures them, one a thread: the costs stay in its cache while they are solved.
    class Reader : Guess {
    public:
        Reader(const Pairs& pairs, std::size_t threads) : pairs_(pairs), threads_(threads), cost_(pairs.m * pairs.n) {}
        const double* read(std::size_t k) {
            pairs_.measure(k, threads_, work_, cost_.data());
            return cost_.data();
        }
        Guess* guess(std::size_t k, Watch& watch) {
            pair_ = k;
            watch_ = &watch;
            return pairs_.precedent_ ? this : nullptr;
        }

    private:
        bool pair_prices(PairPrices& out) override { return pairs_.precedent_->pair_prices(out, desk_, *watch_); }
        bool prices(bool turned, double* prices) override {
            const std::int64_t* which = turned ? pairs_.rows_.data() + pair_ * pairs_.m : pairs_.columns_.data() + pair_ * pairs_.n;
            return pairs_.precedent_->prices(turned, which, pairs_.n, prices, desk_, *watch_);
        }

        const Pairs& pairs_;
        std::size_t threads_, pair_ = 0;
        Watch* watch_ = nullptr;
        std::vector<double> cost_;
        Distances work_;
        Precedent::Desk desk_;
    };
    Reader reader(std::size_t threads) const { return {*this, threads}; }

    // Of each plan how many entries it has, and of all entries the points of x and y and the mass; T holds their numbers.
    template <class T>
    nb::tuple entries(const Answers& answers) const {
        const std::size_t plans = answers.each.size();
        std::vector<std::int64_t> sizes(plans);
        std::size_t total = 0;
        for (std::size_t p = 0; p < plans; ++p) total += sizes[p] = static_cast<std::int64_t>(answers.each[p].entries.size());
        std::vector<T> from(total), to(total);
        std::vector<double> masses(total);
        for (std::size_t p = 0, at = 0; p < plans; ++p) {
            const std::int64_t *rows = rows_.data() + p % count * m, *columns = columns_.data() + p % count * n;
            for (const Entry& e : answers.each[p].entries) {
                from[at] = static_cast<T>(rows[e.row]);
                to[at] = static_cast<T>(columns[e.column]);
                masses[at++] = e.mass;
            }
        }
        return nb::make_tuple(to_numpy(std::move(sizes), {plans}), to_numpy(std::move(from), {total}),
                              to_numpy(std::move(to), {total}), to_numpy(std::move(masses), {total}));
    }
    std::size_t dimension() const { return from_.dimension; }
    bool is_small() const { return std::max(x_.shape(0), y_.shape(0)) <= std::numeric_limits<std::int32_t>::max(); }

    std::size_t count, m, n;

private:
    static constexpr std::size_t many = 128;

    Array x_, y_;  // kept while they are read
    Which rows_, columns_;
    Points from_, to_;
    Metric metric_;
    std::unique_ptr<Precedent> precedent_;
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

constexpr std::size_t few_dimensions = 3;

Answers solve_pairs(Pairs& pairs, const std::vector<double>& masses, std::size_t threads) {
    if (!masses.empty()) pairs.set_precedent(*std::min_element(masses.begin(), masses.end()));
    Request request(masses);
    request.crowded = pairs.dimension() <= few_dimensions;
    return solve_each(pairs, Units(pairs.m, pairs.n, nullptr, nullptr), request, threads);
}

}  // namespace

void bind_exact(nb::module_& m) {
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
    m.def("solve_unbalanced", &solve_unbalanced, "cost"_a, "a"_a, "b"_a, "tau_a"_a, "tau_b"_a, "threads"_a,
          "Unbalanced transport with Kullback-Leibler penalties: triplets and potentials, for one cost or a batch.");
    m.def("solve_masses", &solve_masses, "costs"_a, "masses"_a, "threads"_a, "crowded"_a = false,
          "Solve each of a batch (k, m, n) for each of some masses: k answers for the first mass, then those for the next. "
          "Crowded: rows are likely to fight over few columns, as points in few dimensions do.");
    nb::exception<BadPair>(m, "BadPair");
    nb::class_<Pairs>(m, "Pairs", "Pairs of batches of points; the metric is 'sqeuclidean', 'euclidean' or 'cosine'.")
        .def(nb::init<const Array&, const Array&, const Which&, const Which&, const std::string&>(), "x"_a, "y"_a,
             "rows"_a, "columns"_a, "metric"_a)
        .def("measure", &measure_pairs, "out"_a, "threads"_a,
             "Write the costs (k, m, n). Raises BadPair with the number of the first that holds a point not finite.")
        .def("solve", &solve_pairs, "masses"_a, "threads"_a, "The same as solve_masses of the costs, without storing them.")
        .def("entries", [](const Pairs& pairs, const Answers& answers) {
            return pairs.is_small() ? pairs.entries<std::int32_t>(answers) : pairs.entries<std::int64_t>(answers);
        }, "answers"_a, "The size of each plan that `solve` found, and of all entries the points of x and y, and the mass.");
}

}  // namespace spadeful
