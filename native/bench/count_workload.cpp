// A small fixed workload for counting instructions: count_workload PHASE [ISA]. Run under callgrind with
// --toggle-collect=Runner::forward's name; benchmarks/count_native.py does. Not a test.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "../tests/model_testing.h"

using namespace model_testing;

namespace {

constexpr size_t kPrompt = 40;    // two KV blocks, one of them half full
constexpr size_t kTogether = 6;   // more rows than a block of rows has
constexpr size_t kNewTokens = 4;  // decode steps

/// All tokens of `count` sequences: `chunk` of each in every step.
void feed(const TinyModel& tiny, const Kernels& kernels, size_t count, size_t tokens, size_t chunk) {
    const std::unique_ptr<Model> model = tiny.build();
    KvPool pool(tiny.shape.kv(KvType::f16), 16);
    ThreadPool threads(1);
    Runner runner(*model, pool, threads, kernels, 64);
    Random random(3);
    std::vector<Sequence> sequences;
    for (size_t i = 0; i < count; ++i) {
        const auto block = static_cast<int32_t>(2 * i);
        sequences.push_back(random_sequence(random, tokens, {block, block + 1}, tiny.shape.vocab));
    }
    run(runner, tiny.shape, sequences, chunk);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string phase = argc > 1 ? argv[1] : "";
    const Kernels& kernels = argc > 2 ? kernels_named(argv[2]) : best_kernels();
    const TinyModel tiny;
    if (phase == "prefill") {
        feed(tiny, kernels, 1, kPrompt, kPrompt);
    } else if (phase == "decode") {
        feed(tiny, kernels, 1, kNewTokens, 1);
    } else if (phase == "batch") {
        feed(tiny, kernels, kTogether, kNewTokens, 1);
    } else {
        std::fprintf(stderr, "usage: count_workload prefill|decode|batch [ISA]\n");
        return 2;
    }
    return 0;
}
