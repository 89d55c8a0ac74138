// What all bindings share: watching for Ctrl-C, sharing a batch out over threads, turning failures into errors.
#pragma once
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
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "solver.hpp"
#include "watch.hpp"

namespace spadeful {

namespace nb = nanobind;

void bind_exact(nb::module_& m);
void bind_sweeps(nb::module_& m);
void bind_lines(nb::module_& m);
void bind_color(nb::module_& m);

using Array = nb::ndarray<nb::ro, nb::device::cpu>;
using Vector = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Plans = nb::ndarray<double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Clock = std::chrono::steady_clock;

constexpr auto fresh = nb::rv_policy::automatic;  // every array handed out owns its memory

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

inline std::string text(double x) { return nb::cast<std::string>(nb::str(nb::float_(x))); }

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
        std::size_t k = next;
        try {
            auto worker = make();
            while ((k = next++) < count) {
                watch.check();
                worker(k, watch);
            }
        } catch (...) {
            // Problems are begun in order, so of several failures the first is found whatever the timing.
            const std::lock_guard lock(mutex);
            if (k < failure.problem) failure = {k, std::current_exception()};
            next = count;
        }
        const std::lock_guard lock(mutex);
        --working;
        ended.notify_one();
    };

    std::vector<std::thread> team;
    team.reserve(threads - 1);
    try {
        while (team.size() + 1 < threads)
            team.emplace_back([&] {
                FlagWatch watch(stop);
                work(watch);
            });
    } catch (const std::system_error&) {  // there are no more threads: those that there are do all
        const std::lock_guard lock(mutex);
        working -= threads - 1 - team.size();
    }
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

template <class T>
nb::ndarray<nb::numpy, T> to_numpy(std::vector<T>&& values, std::vector<std::size_t> shape) {
    auto owned = std::make_unique<std::vector<T>>(std::move(values));
    T* data = owned->data();
    nb::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), owner);
}

// (problem, row, column, mass) of every entry; of a single plan the problem is None.
inline nb::tuple to_triplets(const std::vector<const std::vector<Entry>*>& plans, bool batch) {
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

inline auto copy_of(const std::vector<double>& values) {
    return to_numpy(std::vector<double>(values), {values.size()});
}

}  // namespace spadeful
