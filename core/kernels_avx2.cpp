#if defined(SPADEFUL_X86)
#include "kernels.inl"

namespace spadeful {
extern const Kernels avx2_kernels;
const Kernels avx2_kernels = table<Avx2>("avx2");
}  // namespace spadeful
#endif
