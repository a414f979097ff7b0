// The compute pool: every worker runs, barriers hold, tasks are handed out once, and a refused thread is an
// error.
#include "edgeseek/thread_pool.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "check.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EDGESEEK_ASAN
#endif
#endif

using namespace edgeseek;

TEST(every_worker_runs_once_per_run) {
    ThreadPool pool(3);
    for (int round = 0; round < 200; ++round) {
        std::atomic<int> ran{0};
        std::atomic<unsigned> ids{0};
        pool.run([&](Worker& worker) {
            ran.fetch_add(1);
            ids.fetch_or(1u << worker.id());
        });
        REQUIRE(ran.load() == 3 && ids.load() == 7u);
    }
}

TEST(no_worker_passes_a_barrier_before_all_arrive) {
    ThreadPool pool(4);
    std::atomic<int> arrived{0}, early{0};
    pool.run([&](Worker& worker) {
        for (int phase = 1; phase <= 300; ++phase) {
            arrived.fetch_add(1);
            worker.barrier();
            if (arrived.load() < 4 * phase) early.fetch_add(1);
            worker.barrier();
        }
    });
    CHECK_EQ(early.load(), 0);
    CHECK_EQ(arrived.load(), 1200);
}

TEST(tasks_are_handed_out_once) {
    ThreadPool pool(2);
    TaskCounter counter;
    std::vector<std::atomic<int>> taken(1000);
    pool.run([&](Worker&) {
        for (int64_t i; (i = counter.claim(1)) < 1000;) taken[static_cast<size_t>(i)].fetch_add(1);
    });
    for (const auto& t : taken) CHECK_EQ(t.load(), 1);
}

TEST(thread_counts_out_of_range_are_refused) {
    CHECK_THROWS(std::invalid_argument, ThreadPool(0));
    CHECK_THROWS(std::invalid_argument, ThreadPool(1025));
}

TEST(a_thread_the_system_refuses_is_an_error) {
#if defined(__SANITIZE_ADDRESS__) || defined(EDGESEEK_ASAN)
    throw check::Skip("the sanitizer's own memory would hit the limit");
#endif
    // In a child, since the limit cannot be raised again everywhere.
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const rlimit limit{256u << 20, 256u << 20};
        if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(77);
        // An emulator may not keep the limit.
        if (mmap(nullptr, 512u << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) _exit(77);
        try {
            ThreadPool pool(1024);
            _exit(2);
        } catch (const std::runtime_error&) {
            _exit(0);
        } catch (...) {
            _exit(3);
        }
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    SKIP_UNLESS(WEXITSTATUS(status) != 77, "RLIMIT_AS is not kept here");
    CHECK_EQ(WEXITSTATUS(status), 0);
}

TEST(threads_and_caller_stay_on_the_given_processors) {
    cpu_set_t before;
    CHECK_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    int first = 0;
    while (!CPU_ISSET(first, &before)) ++first;
    ThreadPool pool(3, {first});
    std::atomic<int> elsewhere{0};
    pool.run([&](Worker&) {
        cpu_set_t set;
        sched_getaffinity(0, sizeof(set), &set);
        if (CPU_COUNT(&set) != 1 || !CPU_ISSET(first, &set)) elsewhere.fetch_add(1);
    });
    sched_setaffinity(0, sizeof(before), &before);
    CHECK_EQ(elsewhere.load(), 0);
    CHECK_THROWS(std::invalid_argument, ThreadPool(1, {-1}));
    CHECK_THROWS(std::invalid_argument, ThreadPool(1, {1 << 20}));
}

// Not inlined: the compiler does not know that the float mode matters, but it keeps calls in order.
volatile float tiny = 1.5e-38f;
__attribute__((noinline)) float half_of_tiny() { return tiny * 0.5f; }

TEST(a_callers_flush_to_zero_does_not_reach_the_work_and_comes_back) {
#if defined(__x86_64__)
    const unsigned saved = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(saved | 0x8040);  // flush to zero, denormals are zero
#else
    uint64_t saved;
    asm volatile("mrs %0, fpcr" : "=r"(saved));
    asm volatile("msr fpcr, %0" : : "r"(saved | uint64_t{1} << 24));
#endif
    ThreadPool pool(3);
    std::atomic<int> kept{0};
    const bool flushed_before = half_of_tiny() == 0.0f;
    pool.run([&](Worker&) {
        if (half_of_tiny() > 0.0f) kept.fetch_add(1);
    });
    const bool flushed_after = half_of_tiny() == 0.0f;
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(saved);
#else
    asm volatile("msr fpcr, %0" : : "r"(saved));
#endif
    CHECK(flushed_before);
    CHECK(flushed_after);
    CHECK_EQ(kept.load(), 3);
}

int main(int argc, char** argv) { return check::run(argc, argv); }
