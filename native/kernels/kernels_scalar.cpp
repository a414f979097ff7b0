// The scalar reference: every other instruction set must equal it bit for bit.
#include "dot_class.h"
#include "edgeseek/exact_math.h"
#include "table.h"

#define ES_INLINE inline

namespace edgeseek {
namespace {
constexpr int kRowBlock = 1;       // rows that share a pass over the weights
constexpr size_t kDirectRows = 1;  // up to here weights are used straight from their packed form
template <size_t bytes>
inline void prefetch(const uint8_t*) {}
// clang-format off: each of these needs the ones before it
#include "vec16_scalar.h"
#include "dot_scalar.h"
#include "ops.h"
#include "gemm.h"
#include "attention_block.h"
#include "attention.h"
#include "attention_mla.h"
#include "peak.h"
#include "table_entries.h"
// clang-format on
}  // namespace

const Kernels* scalar_kernels() {
    static const Kernels table = make_table("scalar");
    return &table;
}
}  // namespace edgeseek
