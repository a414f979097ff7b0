// NEON with the dot product instructions: Cortex-A55, A76 and later (Raspberry Pi 5, RK3588, Jetson Orin).
#include <arm_neon.h>

#include "dot_class.h"
#include "edgeseek/exact_math.h"
#include "table.h"

#define ES_INLINE inline __attribute__((always_inline))

namespace edgeseek {
namespace {
constexpr int kRowBlock = 4;       // rows that share a pass over the weights
constexpr size_t kDirectRows = 4;  // up to here weights are used straight from their packed form
template <size_t bytes>
ES_INLINE void prefetch(const uint8_t* p) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}
// clang-format off: each of these needs the ones before it
#include "bytes16_neon.h"
#include "vec16_neon.h"
#include "chunk_neon.h"
#include "dot_neondot.h"
#include "ops.h"
#include "gemm.h"
#include "attention_block.h"
#include "attention.h"
#include "attention_mla.h"
#include "peak.h"
#include "table_entries.h"
// clang-format on
}  // namespace

const Kernels* neondot_kernels() {
    static const Kernels table = make_table("neondot");
    return &table;
}
}  // namespace edgeseek
