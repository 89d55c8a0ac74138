#include <nanobind/nanobind.h>

namespace {

const char *simd_level() {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) return "avx2";
#endif
    return "scalar";
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "The compiled core of spadeful.";
    m.def("simd_level", &simd_level, "Name the instruction set that the core uses on this machine.");
}
