// The compute pool: a fixed set of threads that run one function together and meet at barriers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace edgeseek {

/// A counter that several threads wait on: they spin briefly, then sleep in the kernel.
class Gate {
  public:
    uint32_t value() const { return value_.load(std::memory_order_acquire); }
    /// Publishes the next value and wakes sleepers.
    void advance();
    /// Returns once value() != seen.
    void wait(uint32_t seen, int spins);

  private:
    alignas(64) std::atomic<uint32_t> value_{0};
    alignas(64) std::atomic<uint32_t> sleepers_{0};
};

class ThreadPool;

/// One thread's view of a parallel run.
class Worker {
  public:
    Worker(ThreadPool& pool, int id) : pool_(pool), id_(id) {}
    int id() const { return id_; }
    int count() const;
    /// Returns when every worker of the run has arrived.
    void barrier();

  private:
    ThreadPool& pool_;
    int id_;
};

class ThreadPool {
  public:
    /// `threads` >= 1, the caller of run() included. With `cpus` the threads, and whoever calls run(), stay
    /// on those processors; numbers that the system does not have are ignored. Throws std::invalid_argument
    /// outside 1..1024 threads or for a processor outside 0..1023, std::runtime_error when the system refuses
    /// a thread.
    explicit ThreadPool(int threads, std::vector<int> cpus = {});
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return threads_; }
    /// Calls body(worker) once on every thread, the calling one included, and returns when all are done.
    /// `body` must not throw. One run at a time. Rounding is to nearest and subnormals are kept meanwhile,
    /// whatever the caller has set; that comes back afterwards.
    void run(const std::function<void(Worker&)>& body);

  private:
    friend class Worker;
    void loop(int id);
    void stop();
    void stay_on_cpus() const;

    const int threads_;
    const std::vector<int> cpus_;
    std::thread::id caller_;  // the last one that was kept on cpus_
    const int spins_;
    const std::function<void(Worker&)>* body_ = nullptr;
    bool stopping_ = false;
    Gate start_;
    Gate barrier_gate_;
    alignas(64) std::atomic<int> arrived_{0};
    std::vector<std::thread> workers_;
};

/// Hands out task numbers 0, 1, ... to the workers of one phase.
struct alignas(64) TaskCounter {
    std::atomic<int64_t> next{0};
    int64_t claim(int64_t count) { return next.fetch_add(count, std::memory_order_relaxed); }
};

}  // namespace edgeseek
