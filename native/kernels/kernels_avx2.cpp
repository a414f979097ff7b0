// AVX2 + FMA + F16C: Haswell and later, Zen and later.
#include "dot_class.h"
#include "edgeseek/exact_math.h"
#include "table.h"
#include "x86_intrinsics.h"

#define ES_INLINE inline __attribute__((always_inline))

namespace edgeseek {
namespace {
constexpr int kRowBlock = 4;       // rows that share a pass over the weights
constexpr size_t kDirectRows = 8;  // up to here weights are used straight from their packed form
template <size_t bytes>
ES_INLINE void prefetch(const uint8_t* p) {
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}
// clang-format off: each of these needs the ones before it
#include "bytes16_sse.h"
#include "vec16_avx2.h"
#include "chunk_avx2.h"
#include "dot_avx2.h"
#include "ops.h"
#include "gemm.h"
#include "attention_block.h"
#include "attention.h"
#include "attention_mla.h"
#include "peak.h"
#include "table_entries.h"
// clang-format on
}  // namespace

const Kernels* avx2_kernels() {
    static const Kernels table = make_table("avx2");
    return &table;
}
}  // namespace edgeseek
