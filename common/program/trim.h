// Dead code and numbering. Example: a program of which one output is kept loses all that only the others needed. Pure.
#pragma once

#include <vector>

#include "common/program/program.h"

namespace tp {

// The program without instructions, values, states, positions and caches that no output needs; values are numbered by
// first appearance (operands, then instructions), caches by instruction. Request inputs stay, used or not.
ForwardProgram TrimProgram(const ForwardProgram& program);

// By value: an output is it or depends on it.
std::vector<bool> LiveValues(const ForwardProgram& program);

}  // namespace tp
