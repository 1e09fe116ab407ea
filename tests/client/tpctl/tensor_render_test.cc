#include "client/tpctl/tensor_render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace tp::client {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TensorInfo Info() {
  TensorInfo tensor{.name = "w", .mesh_name = "m", .state = "READY", .mesh = *Mesh::Parse("tp=2")};
  tensor.shape = {2, 2};
  tensor.placements = {Placement::Shard(0)};
  return tensor;
}

TEST(TensorRenderTest, RedistributeAsScriptsReadIt) {
  const RedistributeResult result{.tensor = Info(),
                                  .steps = {{"slice", "dp", 0}, {"all_to_all", "tp", 64}},
                                  .counted = {{"all_to_all", "tp", 64}},
                                  .wire_bytes = 80,
                                  .duration_us = 1500};
  EXPECT_EQ(json::parse(RedistributeText(result, true)), json::parse(R"({
    "steps": [{"op": "slice", "axis": "dp", "bytes": 0}, {"op": "all_to_all", "axis": "tp", "bytes": 64}],
    "counted": {"bytes": 64, "wire_bytes": 80, "duration_us": 1500,
                "steps": [{"op": "all_to_all", "axis": "tp", "bytes": 64}]}})"));
  EXPECT_EQ(RedistributeText(result, false),
            "w: F32[2, 2] tp=S(0) on m\n"
            "STEP        AXIS  BYTES PREDICTED  BYTES COUNTED\n"
            "slice       dp    0                -\n"
            "all_to_all  tp    64               64\n"
            "received by the busiest rank: 64 bytes predicted, 64 counted, 80 on the wire; 1.5 ms\n");
}

TEST(TensorRenderTest, ShardsAsScriptsReadThem) {
  const TensorDescription description{Info(),
                                      {{.rank = 0, .worker = "a", .offset = {0, 0}, .shape = {1, 2}, .bytes = 8},
                                       {.rank = 1, .worker = "b", .offset = {1, 0}, .shape = {1, 2}, .bytes = 8}}};
  const std::vector<HostTensor> values = {MakeHostTensor<float>({1, 2}, {0.5f, NAN}),
                                          MakeHostTensor<float>({1, 2}, {-INFINITY, 3})};
  EXPECT_EQ(json::parse(ShardsText(description, &values, true)), json::parse(R"json({
    "shape": [2, 2], "dtype": "F32", "placements": "tp=S(0)", "shards": [
      {"rank": 0, "worker": "a", "offset": [0, 0], "shape": [1, 2], "bytes": 8, "values": [[0.5, "NaN"]]},
      {"rank": 1, "worker": "b", "offset": [1, 0], "shape": [1, 2], "bytes": 8, "values": [["-Infinity", 3.0]]}]})json"));
  EXPECT_FALSE(json::parse(ShardsText(description, nullptr, true))["shards"][0].contains("values"));
  const std::string text = ShardsText(description, &values, false);
  EXPECT_THAT(text, HasSubstr("1     b       [1, 0]  [1, 2]  8\n"));
  EXPECT_THAT(text, HasSubstr("| 0   0 |\n+-------+\n| 1   1 |"));
  EXPECT_THAT(text, HasSubstr("rank 1:\n[[-inf, 3]]\n"));
}

TEST(TensorRenderTest, NestedValues) {
  EXPECT_EQ(NestedText(MakeHostTensor<int64_t>({}, {5})), "5");
  EXPECT_EQ(NestedText(MakeHostTensor<float>({2}, {0.1f, -2})), "[0.1, -2]");
  EXPECT_EQ(NestedText(MakeHostTensor<int32_t>({2, 2}, {1, 2, 3, 4})), "[[1, 2],\n [3, 4]]");
  EXPECT_EQ(NestedText(MakeHostTensor<int32_t>({2, 1, 1}, {1, 2})), "[[[1]],\n\n [[2]]]");
  EXPECT_EQ(NestedText(MakeHostTensor<int32_t>({0, 3}, {})), "[]");
  EXPECT_EQ(json::parse(ValueText(Info(), MakeHostTensor<float>({2, 2}, {1, 2, 3, 4}), true))["values"],
            json::parse("[[1.0, 2.0], [3.0, 4.0]]"));
}

}  // namespace
}  // namespace tp::client
