// NEON of ARMv8.0: Cortex-A53 and A72 (Raspberry Pi 4).
#include <arm_neon.h>

#include "dot_class.h"
#include "edgeseek/exact_math.h"
#include "table.h"

#define ES_INLINE inline __attribute__((always_inline))

namespace edgeseek {
namespace {
constexpr int kRowBlock = 2;       // rows that share a pass over the weights
constexpr size_t kDirectRows = 2;  // up to here weights are used straight from their packed form
template <size_t bytes>
ES_INLINE void prefetch(const uint8_t* p) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}
// clang-format off: each of these needs the ones before it
#include "bytes16_neon.h"
#include "vec16_neon.h"
#include "chunk_neon.h"
#include "dot_neon.h"
#include "ops.h"
#include "gemm.h"
#include "attention_block.h"
#include "attention.h"
#include "attention_mla.h"
#include "peak.h"
#include "table_entries.h"
// clang-format on
}  // namespace

const Kernels* neon_kernels() {
    static const Kernels table = make_table("neon");
    return &table;
}
}  // namespace edgeseek
