#if defined(SPADEFUL_X86)
#include "kernels.inl"

namespace spadeful {
extern const Kernels avx512_kernels;
const Kernels avx512_kernels = table<Avx512>("avx512");
}  // namespace spadeful
#endif
