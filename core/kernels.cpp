#include "kernels.hpp"

#include <atomic>
#include <cstring>

namespace spadeful {

extern const Kernels scalar_kernels;
#if defined(SPADEFUL_X86)
extern const Kernels avx2_kernels, avx512_kernels;
#endif

namespace {

const Kernels* best_kernels() {
#if defined(SPADEFUL_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return &avx512_kernels;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2_kernels;
#endif
    return &scalar_kernels;
}

std::atomic<const Kernels*> chosen{best_kernels()};

}  // namespace

const Kernels& kernels() { return *chosen.load(std::memory_order_relaxed); }

bool choose_kernels(const char* name) {
    const Kernels* wanted = nullptr;
    if (!std::strcmp(name, "best")) wanted = best_kernels();
    if (!std::strcmp(name, "scalar")) wanted = &scalar_kernels;
#if defined(SPADEFUL_X86)
    if (!std::strcmp(name, "avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) wanted = &avx2_kernels;
    if (!std::strcmp(name, "avx512") && __builtin_cpu_supports("avx512f")) wanted = &avx512_kernels;
#endif
    if (wanted) chosen = wanted;
    return wanted;
}

}  // namespace spadeful
