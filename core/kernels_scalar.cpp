#include "kernels.inl"

namespace spadeful {
extern const Kernels scalar_kernels;
const Kernels scalar_kernels = table<Scalar>("scalar");
}  // namespace spadeful
