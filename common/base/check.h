// TP_CHECK: stops the process where our own code proved something that turns out false. Input is never checked with it.
#pragma once

#include <cstdio>
#include <cstdlib>

#define TP_CHECK(condition)                                                                 \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      std::fprintf(stderr, "%s:%d: TP_CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                         \
    }                                                                                       \
  } while (false)
