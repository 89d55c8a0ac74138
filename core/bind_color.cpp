// Colours: means over groups, and functions on a lattice.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "bind.hpp"

namespace spadeful {

using namespace nb::literals;

namespace {

using Numbers = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Colors = nb::ndarray<const float, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

void check_below(const Numbers& numbers, std::size_t size) {
    const std::int32_t *begin = numbers.data(), *end = begin + numbers.size();
    if (std::any_of(begin, end, [=](std::int32_t number) { return number < 0 || static_cast<std::size_t>(number) >= size; }))
        throw nb::index_error("a number names what is not there");
}

using Sums = nb::ndarray<double, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;

// Added up in the order of the entries. The sums are the caller's memory, which NumPy gets in larger pages than we would.
void weighted_means(const Numbers& groups, const Numbers& which, const Vector& weights, const Colors& colors, const Sums& sums) {
    const std::size_t count = groups.size();
    if (which.size() != count || weights.size() != count) throw nb::value_error("groups, which and weights must be as many");
    check_below(groups, sums.shape(0));
    check_below(which, colors.shape(0));
    const auto sum_of = [group = groups.data(), sum = sums.data()](std::size_t e) { return sum + 4 * std::size_t(group[e]); };
    const auto color_of = [at = which.data(), color = colors.data()](std::size_t e) { return color + 3 * std::size_t(at[e]); };
    const double* weight = weights.data();
    double *begin = sums.data(), *end = begin + sums.size();
    nb::gil_scoped_release release;
    std::fill(begin, end, 0.0);
    constexpr std::size_t ahead = 64;  // groups and colours lie anywhere in memory
    for (std::size_t e = 0; e < count; ++e) {
        if (e + ahead < count) {
            __builtin_prefetch(sum_of(e + ahead), 1);
            __builtin_prefetch(color_of(e + ahead));
        }
        double* sum = sum_of(e);
        const float* color = color_of(e);
        for (std::size_t c = 0; c < 3; ++c) sum[c] += weight[e] * static_cast<double>(color[c]);
        sum[3] += weight[e];
    }
    for (double* sum = begin; sum < end; sum += 4)
        if (sum[3] > 0)
            for (std::size_t c = 0; c < 3; ++c) sum[c] /= sum[3];
}

using Lattice = nb::ndarray<const float, nb::shape<-1, -1, -1, 3>, nb::c_contig, nb::device::cpu>;

auto interpolate(const Lattice& values, const Colors& places) {
    const std::size_t n = places.shape(0);
    for (std::size_t c = 0; c < 3; ++c)
        if (values.shape(c) < 2) throw nb::value_error("a lattice must have two nodes along each side");
    std::vector<float> out(3 * n);
    {
        const float *first = values.data(), *place = places.data();
        const std::size_t sides[] = {values.shape(0), values.shape(1), values.shape(2)};
        const std::size_t steps[] = {3 * sides[1] * sides[2], 3 * sides[2], 3};
        nb::gil_scoped_release release;
        for (float* sum = out.data(); sum < out.data() + 3 * n; sum += 3, place += 3) {
            const float* node = first;
            float share[3];
            for (std::size_t c = 0; c < 3; ++c) {
                const float last = static_cast<float>(sides[c] - 2);
                const auto cell = static_cast<std::size_t>(std::min(std::max(place[c], 0.0f), last));
                node += cell * steps[c];
                share[c] = place[c] - static_cast<float>(cell);
            }
            for (std::size_t corner = 0; corner < 8; ++corner) {
                const float* at = node;
                float weight = 1;
                for (std::size_t c = 0; c < 3; ++c) {
                    const bool far = corner >> c & 1;
                    weight *= far ? share[c] : 1 - share[c];
                    at += far ? steps[c] : 0;
                }
                for (std::size_t c = 0; c < 3; ++c) sum[c] += weight * at[c];
            }
        }
    }
    return to_numpy(std::move(out), {n, 3});
}

}  // namespace

void bind_color(nb::module_& m) {
    m.def("weighted_means", &weighted_means, "groups"_a, "which"_a, "weights"_a, "colors"_a, "out"_a,
          "Write of each group the mean of its colours, and its total weight; 0 where there is none.");
    m.def("interpolate", &interpolate, "values"_a, "places"_a,
          "A function with values at the nodes of a lattice, at places between them: trilinear.");
}

}  // namespace spadeful
