// Which instruction set's kernels run: chosen once at run time from what the processor and the operating
// system support and what this build contains. All of them compute the same bits.
#pragma once

#include <string>
#include <vector>

namespace edgeseek {

struct Kernels;  // native/kernels/table.h

/// Names this machine and build support, fastest first; the last is always "scalar".
std::vector<std::string> supported_isas();

/// The kernels of one instruction set. Throws std::invalid_argument, naming the supported ones, if this
/// machine or build lacks it.
const Kernels& kernels_named(const std::string& name);

/// The fastest supported kernels.
const Kernels& best_kernels();

}  // namespace edgeseek
