#include "edgeseek/isa.h"

#include <stdexcept>

#include "table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace edgeseek {
namespace {

using Table = const Kernels* (*)();

struct Choice {
    const char* name;
    Table table;
};

#if defined(__x86_64__)

struct Registers {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

/// All zero for a leaf the processor does not have.
Registers cpuid(unsigned leaf, unsigned subleaf) {
    Registers r;
    if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d)) return {};
    return r;
}

/// Register state the operating system saves (XCR0); 0 where it cannot be read.
unsigned saved_state(const Registers& leaf1) {
    constexpr unsigned osxsave = 1u << 27;
    if (!(leaf1.c & osxsave)) return 0;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool has(unsigned value, unsigned mask) { return (value & mask) == mask; }

// Bits from Intel's Software Developer's Manual, volume 2, CPUID, and volume 1, section 13.3.
std::vector<Choice> choices() {
    const Registers leaf1 = cpuid(1, 0), leaf7 = cpuid(7, 0);
    const unsigned state = saved_state(leaf1);
    constexpr unsigned ymm = 0x06, zmm = 0xe6;
    constexpr unsigned fma_avx_f16c = 1u << 12 | 1u << 28 | 1u << 29;
    constexpr unsigned avx2_bit = 1u << 5, avx512_f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    constexpr unsigned avx512_vnni = 1u << 11;

    std::vector<Choice> found;
    const bool avx2 = has(state, ymm) && has(leaf1.c, fma_avx_f16c) && has(leaf7.b, avx2_bit);
    if (avx2 && has(state, zmm) && has(leaf7.b, avx512_f_dq_bw_vl) && has(leaf7.c, avx512_vnni)) {
        found.push_back({"avx512", avx512_kernels});
    }
#if EDGESEEK_HAVE_AVXVNNI
    constexpr unsigned avx_vnni = 1u << 4;
    // Subleaf 1 exists where subleaf 0 says so in EAX.
    if (avx2 && leaf7.a >= 1 && has(cpuid(7, 1).a, avx_vnni)) found.push_back({"avxvnni", avxvnni_kernels});
#endif
    if (avx2) found.push_back({"avx2", avx2_kernels});
    found.push_back({"scalar", scalar_kernels});
    return found;
}

#elif defined(__aarch64__)

std::vector<Choice> choices() {
    constexpr unsigned long asimd = 1ul << 1, asimd_dotprod = 1ul << 20;  // Linux, asm/hwcap.h
    const unsigned long capabilities = getauxval(AT_HWCAP);
    std::vector<Choice> found;
    if (capabilities & asimd_dotprod) found.push_back({"neondot", neondot_kernels});
    if (capabilities & asimd) found.push_back({"neon", neon_kernels});
    found.push_back({"scalar", scalar_kernels});
    return found;
}

#else

std::vector<Choice> choices() { return {{"scalar", scalar_kernels}}; }

#endif

}  // namespace

std::vector<std::string> supported_isas() {
    std::vector<std::string> names;
    for (const Choice& choice : choices()) names.emplace_back(choice.name);
    return names;
}

const Kernels& kernels_named(const std::string& name) {
    std::string supported;
    for (const Choice& choice : choices()) {
        if (name == choice.name) return *choice.table();
        supported += supported.empty() ? "" : ", ";
        supported += choice.name;
    }
    throw std::invalid_argument("instruction set '" + name +
                                "' is not available; this machine and build support " + supported);
}

const Kernels& best_kernels() { return *choices().front().table(); }

}  // namespace edgeseek
