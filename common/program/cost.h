// What a program costs, by a stated model: flops of each instruction, bytes that it moves in the rank's memory, bytes
// that collectives receive, and an estimated time. An instruction takes max(flops / peak, bytes / memory bandwidth); a
// collective takes latency * hops + bytes / link bandwidth, where the busiest of n ranks makes n - 1 hops (all_gather,
// reduce_scatter, all_to_all, permute) or 2 (n - 1) (all_reduce). Nothing overlaps. Example: a linear of [1, 16, 256]
// by [256, 256] is 2 * 16 * 256 * 256 flops on one rank, half of that under either style on tp=2. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/program/memory.h"
#include "common/program/program.h"

namespace tp {

// The defaults are of a rank on some cores of a processor and of loopback or Ethernet between ranks.
struct CostModel {
  double flops_per_second = 1e11;         // of one rank
  double memory_bytes_per_second = 2e10;  // of one rank
  double link_bytes_per_second = 1e9;     // received by one rank
  double hop_seconds = 5e-5;              // latency of one hop
};
// "100 Gflop/s and 20 GB/s of memory a rank, 1 GB/s and 50 us a hop between ranks".
std::string CostModelText(const CostModel& model);

struct Cost {
  double flops = 0;
  double memory_bytes = 0;      // read and written in the rank's memory
  double collective_bytes = 0;  // received by the busiest rank (SEMANTICS 3)
  double seconds = 0;
  Cost& operator+=(const Cost& other);
};

// A step that moves or changes data between ranks: the records of CollectivesOf, in their order.
struct CollectiveCost {
  CollectiveRecord record;
  int group_size = 1;  // ranks that take part in one
  int groups = 1;      // that do it at once
  double seconds = 0;
};

// On the busiest rank, whose blocks are the largest (coordinate 0 of every axis). flops: 2 m n k of products (linear,
// matmul, bmm, conv1d, conv2d), 4 * batch * heads * queries * keys * head_dim of attention (masked pairs counted),
// elements of the outputs for every other function and of the result for steps that reduce.
struct ProgramCost {
  std::vector<Cost> instructions;       // one for each
  std::map<std::string, Cost> modules;  // by path, of a module with all below it; "" is the whole program
  std::vector<CollectiveCost> collectives;
  Cost total;
};
// INVALID_ARGUMENT for unbound symbols, RESOURCE_EXHAUSTED for values over 2^62 bytes.
absl::StatusOr<ProgramCost> CostOf(const ForwardProgram& program, const Bindings& bindings,
                                   const CostModel& model = {});

}  // namespace tp
