// The one place that includes x86 intrinsics. Tests on machines without AVX-512 compile the same kernels over
// SIMDe.
#pragma once

#if defined(EDGESEEK_SIMDE)
#include "simde_intrinsics.h"
#else
// g++ before 13 takes the deliberately undefined operands inside its own AVX-512 header for mistakes (GCC bug
// 105593).
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif
