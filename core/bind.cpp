// The module that Python sees.
#include <string>

#include "bind.hpp"
#include "kernels.hpp"

using namespace spadeful;
using namespace nb::literals;

NB_MODULE(_core, m) {
    m.doc() = "The compiled core of spadeful.";
    bind_exact(m);
    bind_sweeps(m);
    bind_lines(m);
    bind_color(m);
    m.def("simd_level", [] { return std::string(kernels().name); }, "The instruction set in use.");
    m.def("choose_simd_level", [](const std::string& name) { return choose_kernels(name.c_str()); }, "name"_a,
          "Use 'scalar', 'avx2', 'avx512' or 'best'; false if this machine has no such level.");
}
