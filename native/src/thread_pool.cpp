#include "edgeseek/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace edgeseek {
namespace {

// About 100 us of spinning covers the gap between two decode steps without burning an idle core.
constexpr int kSpins = 4000;

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");  // `yield` returns at once on most cores; isb waits about as long as x86's pause
#endif
}

long futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
    return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, nullptr, nullptr, 0);
}

/// The default floating-point environment while it lives: a caller's flush-to-zero would change bits.
class DefaultFloats {
  public:
    DefaultFloats() : saved_(get()) { set(kDefault); }
    ~DefaultFloats() { set(saved_); }
    DefaultFloats(const DefaultFloats&) = delete;
    DefaultFloats& operator=(const DefaultFloats&) = delete;

  private:
#if defined(__x86_64__)
    using Word = uint32_t;
    static constexpr Word kDefault = 0x1f80;  // MXCSR: all exceptions masked, nearest, no flushing
    static Word get() { return __builtin_ia32_stmxcsr(); }
    static void set(Word word) { __builtin_ia32_ldmxcsr(word); }
#else
    using Word = uint64_t;
    static constexpr Word kDefault = 0;  // FPCR
    static Word get() {
        Word word;
        asm volatile("mrs %0, fpcr" : "=r"(word));
        return word;
    }
    static void set(Word word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
#endif
    Word saved_;
};

constexpr int kMaxCpus = CPU_SETSIZE;

}  // namespace

void Gate::advance() {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) futex(&value_, FUTEX_WAKE_PRIVATE, INT_MAX);
}

void Gate::wait(uint32_t seen, int spins) {
    for (int i = 0; i < spins; ++i) {
        if (value_.load(std::memory_order_acquire) != seen) return;
        relax();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (value_.load(std::memory_order_seq_cst) == seen) futex(&value_, FUTEX_WAIT_PRIVATE, seen);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

int Worker::count() const { return pool_.size(); }

void Worker::barrier() {
    if (pool_.threads_ == 1) return;
    const uint32_t seen = pool_.barrier_gate_.value();
    if (pool_.arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == pool_.threads_) {
        pool_.arrived_.store(0, std::memory_order_relaxed);
        pool_.barrier_gate_.advance();
    } else {
        pool_.barrier_gate_.wait(seen, pool_.spins_);
    }
}

ThreadPool::ThreadPool(int threads, std::vector<int> cpus)
    : threads_(threads),
      cpus_(std::move(cpus)),
      // More threads than processors: a spinning thread would keep the one it waits for off the core.
      spins_(threads <= static_cast<int>(std::thread::hardware_concurrency()) ? kSpins : 0) {
    if (threads < 1 || threads > 1024) {
        throw std::invalid_argument("threads must be 1 to 1024, not " + std::to_string(threads));
    }
    for (const int cpu : cpus_) {
        if (cpu < 0 || cpu >= kMaxCpus) {
            throw std::invalid_argument("processor " + std::to_string(cpu) + " is outside 0 to " +
                                        std::to_string(kMaxCpus - 1));
        }
    }
    try {
        for (int id = 1; id < threads; ++id) workers_.emplace_back([this, id] { loop(id); });
    } catch (const std::system_error& error) {
        const size_t started = workers_.size() + 1;
        stop();
        throw std::runtime_error("only " + std::to_string(started) + " of " + std::to_string(threads) +
                                 " threads could be started (" + error.what() + ")");
    }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
    stopping_ = true;
    start_.advance();
    for (std::thread& t : workers_) t.join();
    workers_.clear();
}

void ThreadPool::stay_on_cpus() const {
    if (cpus_.empty()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus_) CPU_SET(cpu, &set);
    // It only is about speed: where the system refuses, the thread stays where it is.
    sched_setaffinity(0, sizeof(set), &set);
}

void ThreadPool::run(const std::function<void(Worker&)>& body) {
    if (!cpus_.empty() && caller_ != std::this_thread::get_id()) {
        caller_ = std::this_thread::get_id();
        stay_on_cpus();
    }
    const DefaultFloats floats;
    body_ = &body;
    if (threads_ > 1) start_.advance();
    Worker self(*this, 0);
    body(self);
    self.barrier();
}

void ThreadPool::loop(int id) {
    const DefaultFloats floats;
    stay_on_cpus();
    uint32_t seen = 0;
    for (;;) {
        start_.wait(seen, spins_);
        ++seen;
        if (stopping_) return;
        Worker self(*this, id);
        (*body_)(self);
        self.barrier();
    }
}

}  // namespace edgeseek
