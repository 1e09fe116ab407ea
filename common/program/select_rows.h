// The step program of a language model: of all tokens of a step only those rows whose next token is wanted go through
// the head. Example: ... -> add [batch, time, 256] -> select_rows [1, rows, 256] -> rms_norm -> linear -> logits on
// every rank. Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/program/program.h"

namespace tp {

// `program` with the output `logits` only, [1, rows, vocabulary], replicated, and one more operand, the rows. The rows
// are selected as early as all that follows acts on each token alone.
absl::StatusOr<ForwardProgram> MakeStepProgram(const ForwardProgram& program, const std::string& logits);

}  // namespace tp
