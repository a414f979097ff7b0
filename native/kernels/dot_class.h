// Ranges of weight codes; they decide how many products an int16 accumulator can take.
#pragma once

namespace edgeseek {
enum class Codes { u4, u5, u6, s8 };  // 0..15, 0..31, 0..63, -128..127
}
