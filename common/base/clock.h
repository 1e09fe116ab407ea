// Time is injected, so that tests own it. Example: `absl::Time now = clock.Now();`
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tp {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class RealClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace tp
