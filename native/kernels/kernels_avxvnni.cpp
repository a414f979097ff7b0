// AVX-VNNI: 256-bit vpdpbusd with VEX encoding (Alder Lake and its N-series, Zen 5). Defining
// EDGESEEK_AVXVNNI_AS_AVX512VL builds the same code with the AVX-512 encoding, for tests.
#include "dot_class.h"
#include "edgeseek/exact_math.h"
#include "table.h"
#include "x86_intrinsics.h"

#define ES_INLINE inline __attribute__((always_inline))
#if defined(EDGESEEK_AVXVNNI_AS_AVX512VL)
#define ES_DPBUSD _mm256_dpbusd_epi32
#else
#define ES_DPBUSD _mm256_dpbusd_avx_epi32
#endif

namespace edgeseek {
namespace {
constexpr int kRowBlock = 4;       // rows that share a pass over the weights
constexpr size_t kDirectRows = 4;  // up to here weights are used straight from their packed form
template <size_t bytes>
ES_INLINE void prefetch(const uint8_t* p) {
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}
// clang-format off: each of these needs the ones before it
#include "bytes16_sse.h"
#include "vec16_avx2.h"
#include "chunk_avx2.h"
#include "dot_avxvnni.h"
#include "ops.h"
#include "gemm.h"
#include "attention_block.h"
#include "attention.h"
#include "attention_mla.h"
#include "peak.h"
#include "table_entries.h"
// clang-format on
}  // namespace

const Kernels* avxvnni_kernels() {
    static const Kernels table = make_table("avxvnni");
    return &table;
}
}  // namespace edgeseek
