// A small test harness for the core: named cases, checks that print both values, one runner.
//
//     #include "check.h"
//     TEST(dot_product_of_ones_is_length) { CHECK_EQ(dot(ones(64)), 64); }
//     int main(int argc, char** argv) { return check::run(argc, argv); }
//
// A failed CHECK is printed with its place and the case goes on; REQUIRE ends the case. The program
// takes substrings of case names (run only those) or --list, and exits with 1 if any case failed, with
// 2 if none was selected. Include it in exactly one source file per executable.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iomanip>
#include <iostream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace check {

struct Case {
    const char* name;
    void (*body)();
};

struct State {
    std::vector<Case> cases;
    int checks = 0;
    int failures = 0;
    // A loop over kernels can fail thousands of times; only the first few of a case are printed.
    int printed = 0;
    int skipped = 0;
};

inline State& state() {
    static State instance;
    return instance;
}

struct Registration {
    Registration(const char* name, void (*body)()) { state().cases.push_back({name, body}); }
};

// Ends a case early without failing it (an instruction set this machine lacks).
struct Skip : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Abort {};

template <class T>
std::string show(const T& value) {
    std::ostringstream out;
    if constexpr (std::is_same_v<T, bool>) {
        out << (value ? "true" : "false");
    } else if constexpr (std::is_enum_v<T>) {
        out << static_cast<long long>(value);
    } else if constexpr (std::is_floating_point_v<T>) {
        out << std::setprecision(std::numeric_limits<T>::max_digits10) << value;
    } else if constexpr (std::is_integral_v<T> && sizeof(T) == 1) {
        out << static_cast<int>(value);
    } else {
        out << value;
    }
    return out.str();
}

inline void fail(const char* file, int line, const std::string& message) {
    State& s = state();
    s.failures++;
    s.printed++;
    if (s.printed <= 10) std::cout << "    " << file << ":" << line << ": " << message << "\n";
    if (s.printed == 11) std::cout << "    (further failures of this case are counted, not shown)\n";
}

inline bool that(bool ok, const char* text, const char* file, int line) {
    state().checks++;
    if (!ok) fail(file, line, std::string(text) + " is false");
    return ok;
}

template <class A, class B>
bool equal(const A& a, const B& b, const char* text, const char* file, int line) {
    state().checks++;
    bool same = false;
    if constexpr (std::is_integral_v<A> && std::is_integral_v<B> && !std::is_same_v<A, bool> &&
                  !std::is_same_v<B, bool>) {
        // Signed and unsigned compare by value, so that CHECK_EQ(v.size(), 3) means what it says.
        same = (a < A(0)) == (b < B(0)) && static_cast<std::uint64_t>(a) == static_cast<std::uint64_t>(b);
    } else {
        same = a == b;
    }
    if (!same) fail(file, line, std::string(text) + ": " + show(a) + " != " + show(b));
    return same;
}

inline bool near(double a, double b, double tolerance, const char* text, const char* file, int line) {
    state().checks++;
    const bool ok = std::abs(a - b) <= tolerance;
    if (!ok) {
        fail(file, line,
             std::string(text) + ": " + show(a) + " and " + show(b) + " differ by more than " +
                 show(tolerance));
    }
    return ok;
}

// Compares memory bit for bit, so -0.0 != 0.0 and a NaN equals itself; reports the first difference.
template <class T>
bool same_bits(const T* a, const T* b, std::size_t count, const char* text, const char* file, int line) {
    static_assert(std::is_trivially_copyable_v<T>);
    state().checks++;
    for (std::size_t i = 0; i < count; i++) {
        if (std::memcmp(a + i, b + i, sizeof(T)) != 0) {
            fail(file, line,
                 std::string(text) + ": first difference at " + show(i) + " of " + show(count) + ": " +
                     show(a[i]) + " != " + show(b[i]));
            return false;
        }
    }
    return true;
}

inline bool selected(const char* name, int argc, char** argv) {
    for (int i = 1; i < argc; i++) {
        if (std::strstr(name, argv[i]) != nullptr) return true;
    }
    return argc < 2;
}

inline int run(int argc, char** argv) {
    State& s = state();
    if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
        for (const Case& c : s.cases) std::cout << c.name << "\n";
        return 0;
    }
    int ran = 0;
    int failed = 0;
    for (const Case& c : s.cases) {
        if (!selected(c.name, argc, argv)) continue;
        const int before = s.failures;
        const char* verdict = "ok";
        s.printed = 0;
        ran++;
        try {
            c.body();
        } catch (const Skip& reason) {
            s.skipped++;
            verdict = "skip";
            std::cout << "    " << reason.what() << "\n";
        } catch (const Abort&) {
            // REQUIRE has counted and printed the failure.
        } catch (const std::exception& error) {
            fail(c.name, 0, std::string("threw ") + error.what());
        }
        if (s.failures != before) {
            failed++;
            verdict = "FAIL";
        }
        std::cout << std::left << std::setw(5) << verdict << c.name << std::endl;
    }
    std::cout << ran - failed - s.skipped << " passed, " << failed << " failed, " << s.skipped << " skipped ("
              << s.checks << " checks)" << std::endl;
    if (ran == 0) return 2;
    return failed == 0 ? 0 : 1;
}

}  // namespace check

#define TEST(name)                                                                       \
    static void check_case_##name();                                                     \
    static const check::Registration check_registered_##name{#name, &check_case_##name}; \
    static void check_case_##name()

#define CHECK(condition) check::that(static_cast<bool>(condition), #condition, __FILE__, __LINE__)
#define CHECK_EQ(a, b) check::equal((a), (b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_NEAR(a, b, tolerance) check::near((a), (b), (tolerance), #a " ~ " #b, __FILE__, __LINE__)
#define CHECK_SAME_BITS(a, b, count) \
    check::same_bits((a), (b), (count), #a " same bits as " #b, __FILE__, __LINE__)

// The statement must throw an exception of that type.
#define CHECK_THROWS(type, statement)                                               \
    do {                                                                            \
        bool check_caught = false;                                                  \
        try {                                                                       \
            statement;                                                              \
        } catch (const type&) {                                                     \
            check_caught = true;                                                    \
        }                                                                           \
        check::that(check_caught, #statement " throws " #type, __FILE__, __LINE__); \
    } while (false)

#define REQUIRE(condition)                                                              \
    do {                                                                                \
        if (!check::that(static_cast<bool>(condition), #condition, __FILE__, __LINE__)) \
            throw check::Abort{};                                                       \
    } while (false)

#define SKIP_UNLESS(condition, reason)               \
    do {                                             \
        if (!(condition)) throw check::Skip(reason); \
    } while (false)
