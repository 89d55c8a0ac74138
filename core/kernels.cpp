#include "kernels.hpp"

#include <atomic>
#include <cstring>

#if defined(SPADEFUL_X86) && defined(_MSC_VER)
#include <immintrin.h>
#include <intrin.h>
#endif

namespace spadeful {

extern const Kernels scalar_kernels;
#if defined(SPADEFUL_X86)
extern const Kernels avx2_kernels, avx512_kernels;
#endif

namespace {

#if defined(SPADEFUL_X86)
struct Sets {
    bool avx2 = false, avx512 = false;
};

// The instruction sets that both the processor and the system support.
Sets instruction_sets() {
#if defined(_MSC_VER)  // where the runtime of the builtins below is not linked in
    int info[4];
    __cpuid(info, 1);
    const bool fma = info[2] & (1 << 12), saves = info[2] & (1 << 27);
    if (!fma || !saves) return {};
    const auto saved = _xgetbv(0);
    __cpuidex(info, 7, 0);
    return {(saved & 0x06) == 0x06 && (info[1] & (1 << 5)), (saved & 0xe6) == 0xe6 && (info[1] & (1 << 16))};
#else
    __builtin_cpu_init();
    return {__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), __builtin_cpu_supports("avx512f") != 0};
#endif
}
#endif

const Kernels* best_kernels() {
#if defined(SPADEFUL_X86)
    const Sets sets = instruction_sets();
    if (sets.avx512) return &avx512_kernels;
    if (sets.avx2) return &avx2_kernels;
#endif
    return &scalar_kernels;
}

std::atomic<const Kernels*> chosen{best_kernels()};
std::atomic<bool> named{false};  // by choose_kernels(), and not "best"

}  // namespace

const Kernels& kernels() { return *chosen.load(std::memory_order_relaxed); }

// Up to this length it counts how soon the smallest of a register's numbers is known, not how many it holds.
constexpr std::size_t short_row = 160;

const Kernels& kernels([[maybe_unused]] std::size_t n) {
    const Kernels& widest = kernels();
#if defined(SPADEFUL_X86)
    if (&widest == &avx512_kernels && n <= short_row && !named) return avx2_kernels;
#endif
    return widest;
}

bool choose_kernels(const char* name) {
    const Kernels* wanted = nullptr;
    if (!std::strcmp(name, "best")) wanted = best_kernels();
    if (!std::strcmp(name, "scalar")) wanted = &scalar_kernels;
#if defined(SPADEFUL_X86)
    const Sets sets = instruction_sets();
    if (!std::strcmp(name, "avx2") && sets.avx2) wanted = &avx2_kernels;
    if (!std::strcmp(name, "avx512") && sets.avx512) wanted = &avx512_kernels;
#endif
    if (wanted) {
        chosen = wanted;
        named = std::strcmp(name, "best") != 0;
    }
    return wanted;
}

}  // namespace spadeful
