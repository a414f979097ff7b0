// The harness must notice what it claims to notice, or every other test here is worth nothing.
#include "check.h"

namespace {

// Runs a check that is expected to fail and takes its failure back out of the count.
template <class F>
bool fails(F&& body) {
    check::State& s = check::state();
    const int before = s.failures;
    std::ostringstream sink;
    std::streambuf* const stdout_buffer = std::cout.rdbuf(sink.rdbuf());
    try {
        body();
    } catch (const check::Abort&) {
    }
    std::cout.rdbuf(stdout_buffer);
    const bool failed = s.failures > before;
    s.failures = before;
    return failed;
}

}  // namespace

TEST(equality_is_by_value_across_signedness) {
    CHECK_EQ(std::size_t{3}, 3);
    CHECK(fails([] { CHECK_EQ(std::uint32_t{0xffffffffu}, -1); }));
}

TEST(failed_checks_are_counted) {
    CHECK(fails([] { CHECK(1 > 2); }));
    CHECK(fails([] { CHECK_EQ(std::string("a"), std::string("b")); }));
    CHECK(fails([] { CHECK_NEAR(1.0, 1.2, 0.1); }));
    CHECK(fails([] { CHECK_NEAR(1.0, std::nan(""), 0.1); }));
    CHECK(fails([] { CHECK_THROWS(std::runtime_error, (void)0); }));
    CHECK(fails([] { REQUIRE(false); }));
}

TEST(bit_comparison_tells_zeros_apart_and_accepts_nan) {
    const float zero[2] = {0.0f, 1.0f};
    const float negative[2] = {-0.0f, 1.0f};
    const float nan[1] = {std::nanf("")};
    CHECK(fails([&] { CHECK_SAME_BITS(zero, negative, 2); }));
    CHECK_SAME_BITS(zero + 1, negative + 1, 1);
    CHECK_SAME_BITS(nan, nan, 1);
}

int main(int argc, char** argv) { return check::run(argc, argv); }
