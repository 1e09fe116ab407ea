#include "common/proto_convert/layout.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

namespace tp {
namespace {

using ::testing::HasSubstr;

v1::Placement Message(const std::string& text) {
  v1::Placement message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

struct PlacementCase {
  std::string message;
  Placement value;
};

class PlacementConvert : public ::testing::TestWithParam<PlacementCase> {};

TEST_P(PlacementConvert, BothWays) {
  absl::StatusOr<Placement> value = PlacementFromProto(Message(GetParam().message), "p");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, GetParam().value);
  v1::Placement back;
  PlacementToProto(GetParam().value, &back);
  EXPECT_EQ(back.SerializeAsString(), Message(GetParam().message).SerializeAsString());
}

INSTANTIATE_TEST_SUITE_P(
    All, PlacementConvert,
    ::testing::Values(PlacementCase{"replicate {}", Placement::Replicate()},
                      PlacementCase{"shard { dim: -1 }", Placement::Shard(-1)},
                      PlacementCase{"partial { op: OP_SUM }", Placement::Partial(ReduceOp::kSum)},
                      PlacementCase{"partial { op: OP_AVG }", Placement::Partial(ReduceOp::kAvg)},
                      PlacementCase{"partial { op: OP_MIN }", Placement::Partial(ReduceOp::kMin)},
                      PlacementCase{"partial { op: OP_MAX }", Placement::Partial(ReduceOp::kMax)},
                      PlacementCase{"partial { op: OP_PRODUCT }", Placement::Partial(ReduceOp::kProduct)},
                      PlacementCase{"strided_shard { dim: 1 split_factor: 2 }", Placement::StridedShard(1, 2)},
                      PlacementCase{"interleaved_shard { dim: 0 parts: [8, 2, 2] }",
                                    Placement::InterleavedShard(0, {8, 2, 2})},
                      PlacementCase{"group_shard { dim: 0 groups: 4 }", Placement::GroupShard(0, 4)}));

struct BadPlacement {
  std::string message;
  std::string error;
};

class PlacementRefusal : public ::testing::TestWithParam<BadPlacement> {};

TEST_P(PlacementRefusal, NamesTheField) {
  absl::StatusOr<Placement> value = PlacementFromProto(Message(GetParam().message), "spec.placements[1]");
  ASSERT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(value.status().message()), HasSubstr(GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(
    All, PlacementRefusal,
    ::testing::Values(BadPlacement{"", "spec.placements[1]: exactly one of"},
                      BadPlacement{"partial {}", "spec.placements[1].partial.op: unknown reduction 0"},
                      BadPlacement{"strided_shard { dim: 0 }", ".strided_shard.split_factor: is 0"},
                      BadPlacement{"interleaved_shard { dim: 0 }", ".interleaved_shard.parts: at least one"},
                      BadPlacement{"interleaved_shard { parts: [1, -2] }", ".interleaved_shard.parts[1]: is -2"},
                      BadPlacement{"group_shard { groups: -1 }", ".group_shard.groups: is -1"}));

TEST(DTypeConvert, AllTypesBothWays) {
  for (DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI64, DType::kI32, DType::kU8, DType::kBool}) {
    v1::DataType proto = DTypeToProto(dtype);
    EXPECT_EQ(v1::DataType_Name(proto), DTypeName(dtype));
    EXPECT_EQ(DTypeFromProto(proto, "d").value(), dtype);
  }
  EXPECT_THAT(std::string(DTypeFromProto(static_cast<v1::DataType>(77), "d").status().message()),
              HasSubstr("d: unknown element type 77"));
  EXPECT_FALSE(DTypeFromProto(v1::DATA_TYPE_UNSPECIFIED, "d").ok());
}

TEST(ShapeConvert, NegativeAndOverflowingSizesAreRefused) {
  google::protobuf::RepeatedField<int64_t> shape;
  shape.Add(3);
  shape.Add(0);
  EXPECT_EQ(ShapeFromProto(shape, "s").value(), (Shape{3, 0}));
  shape.Add(-1);
  EXPECT_EQ(ShapeFromProto(shape, "s").status().code(), absl::StatusCode::kInvalidArgument);
  google::protobuf::RepeatedField<int64_t> large;
  large.Add(int64_t{1} << 40);
  large.Add(int64_t{1} << 40);
  EXPECT_EQ(ShapeFromProto(large, "s").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MeshConvert, KeepsAxesInOrder) {
  v1::Mesh message;
  MeshToProto({{"dp", 2}, {"tp", 3}}, &message);
  absl::StatusOr<Mesh> mesh = MeshFromProto(message, "mesh");
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(mesh->ToString(), "dp=2,tp=3");
  message.mutable_axes(1)->set_size(0);
  EXPECT_THAT(std::string(MeshFromProto(message, "mesh").status().message()), HasSubstr("mesh: "));
}

}  // namespace
}  // namespace tp
