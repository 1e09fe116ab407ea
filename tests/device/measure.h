// Measurements of copies, kernels, products, attention and decode steps, each beside a ceiling that the same run
// measured. Rows are reported as they come (check.h); nothing is asserted.
#pragma once

namespace tp::testing {

// False where something could not be measured; its row says "failed" and why.
bool Measure();

}  // namespace tp::testing
