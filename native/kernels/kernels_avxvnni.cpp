#include "table.h"

namespace edgeseek {
const Kernels* avxvnni_kernels() { return scalar_kernels(); }
}  // namespace edgeseek
