// The choice of kernels at run time.
#include "check.h"
#include "edgeseek/isa.h"
#include "table.h"

using namespace edgeseek;

TEST(every_supported_set_has_a_complete_table_of_its_name) {
    for (const std::string& name : supported_isas()) {
        const Kernels& kernels = kernels_named(name);
        CHECK_EQ(std::string(kernels.name), name);
        for (const GemmTile gemm : kernels.gemm) CHECK(gemm != nullptr);
        CHECK(kernels.quantize != nullptr && kernels.rms_norm != nullptr && kernels.swiglu != nullptr);
        CHECK(kernels.add != nullptr && kernels.rope != nullptr && kernels.store_kv != nullptr);
        for (const auto attention : kernels.attention) CHECK(attention != nullptr);
        for (const auto range : kernels.attention_range) CHECK(range != nullptr);
        CHECK(kernels.attention_join != nullptr);
    }
}

TEST(the_scalar_reference_is_always_there_and_last) {
    CHECK_EQ(supported_isas().back(), std::string("scalar"));
    CHECK_EQ(&kernels_named("scalar"), scalar_kernels());
}

TEST(the_best_is_the_first) { CHECK_EQ(std::string(best_kernels().name), supported_isas().front()); }

TEST(an_unknown_set_is_refused_with_the_ones_there_are) {
    CHECK_THROWS(std::invalid_argument, kernels_named(""));
    try {
        kernels_named("avx1024");
    } catch (const std::invalid_argument& error) {
        const std::string message = error.what();
        CHECK(message.find("'avx1024'") != std::string::npos);
        for (const std::string& name : supported_isas()) CHECK(message.find(name) != std::string::npos);
    }
}

int main(int argc, char** argv) { return check::run(argc, argv); }
