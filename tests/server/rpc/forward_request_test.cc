#include "server/rpc/forward_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::ForwardInput Full(const std::string& name, std::vector<int64_t> shape) {
  v1::ForwardInput input;
  input.set_name(name);
  input.set_dtype(v1::F32);
  input.mutable_shape()->Add(shape.begin(), shape.end());
  return input;
}
v1::ForwardInput Sharded(const std::string& name, std::vector<int64_t> sizes) {
  v1::ForwardInput input = Full(name, {5});
  (*input.mutable_shards()->mutable_placements())["tp"].mutable_shard();
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    v1::LocalTensor* local = input.mutable_shards()->add_locals();
    local->set_rank(static_cast<int>(rank));
    local->add_shape(sizes[rank]);
  }
  return input;
}
v1::ForwardInput Ref(const std::string& name, const std::string& tensor) {
  v1::ForwardInput input;
  input.set_name(name);
  input.set_ref(tensor);
  return input;
}
v1::ForwardHeader Header(std::vector<v1::ForwardInput> inputs) {
  v1::ForwardHeader header;
  header.set_model("m");
  for (const v1::ForwardInput& input : inputs) *header.add_inputs() = input;
  return header;
}
std::string Refusal(const v1::ForwardHeader& header, Limits limits = {}) {
  return ForwardFromProto(header, limits).status().ToString();
}

TEST(ForwardRequestTest, ArraysComeInOrderOverAllInputs) {
  auto pending = ForwardFromProto(Header({Full("a", {2}), Sharded("b", {3, 2}), Ref("c", "t"), Full("d", {})}), {});
  ASSERT_TRUE(pending.ok()) << pending.status();
  EXPECT_THAT(pending->sizes, ElementsAre(8, 12, 8, 4));
  const ForwardRequested event = WithBytes(*std::move(pending), {"aaaaaaaa", "bbbbbbbbbbbb", "cccccccc", "dddd"});
  EXPECT_EQ(event.model, "m");
  EXPECT_EQ(event.inputs.at("a").bytes, "aaaaaaaa");
  EXPECT_EQ(event.inputs.at("d").bytes, "dddd");
  EXPECT_EQ(event.shards.at("b").shape, (Shape{5}));
  EXPECT_THAT(event.shards.at("b").data, ElementsAre("bbbbbbbbbbbb", "cccccccc"));
  EXPECT_EQ(event.shards.at("b").placements.at("tp"), Placement::Shard(0));
  EXPECT_EQ(event.refs.at("c"), "t");
  EXPECT_FALSE(event.local_blocks);
}

TEST(ForwardRequestTest, OutputForms) {
  v1::ForwardHeader header = Header({});
  header.set_output_form(v1::OUTPUT_FORM_SHARDS);
  EXPECT_TRUE(ForwardFromProto(header, {})->event.local_blocks);
  header.set_output_form(v1::OUTPUT_FORM_FULL);
  EXPECT_FALSE(ForwardFromProto(header, {})->event.local_blocks);
  header.set_output_form(static_cast<v1::OutputForm>(7));
  EXPECT_THAT(Refusal(header), HasSubstr("header.output_form: is 7"));
}

TEST(ForwardRequestTest, BadHeadersAreRefusedWithTheField) {
  EXPECT_THAT(Refusal(Header({Full("a", {1}), Ref("a", "t")})), HasSubstr("header.inputs[1].name: 'a' is repeated"));
  EXPECT_THAT(Refusal(Header({Full("a", {-1})})), HasSubstr("header.inputs[0].shape"));
  EXPECT_THAT(Refusal(Header({Full("a", {int64_t{1} << 62, 8})})), HasSubstr("header.inputs[0].shape"));
  EXPECT_THAT(Refusal(Header({Sharded("a", {})})), HasSubstr("header.inputs[0].shards.locals"));
  EXPECT_THAT(Refusal(Header({Sharded("a", {1, -1})})), HasSubstr("header.inputs[0].shards.locals[1].shape"));
  v1::ForwardInput input = Sharded("a", {3, 2});
  input.mutable_shards()->set_infer_shape(true);
  EXPECT_THAT(Refusal(Header({input})), HasSubstr("infer_shape: the shape is given, too"));
  input = Sharded("a", {3, 2});
  (*input.mutable_shards()->mutable_placements())["dp"];
  EXPECT_THAT(Refusal(Header({input})), HasSubstr("header.inputs[0].shards.placements[dp]"));
  input = Ref("a", "t");
  input.set_dtype(v1::F32);
  EXPECT_THAT(Refusal(Header({input})), HasSubstr("header.inputs[0].ref: the tensor has its own dtype and shape"));
  input = Full("a", {1});
  input.clear_dtype();
  EXPECT_THAT(Refusal(Header({input})), HasSubstr("header.inputs[0].dtype"));
  Limits limits;
  limits.input_bytes = 19;  // all arrays together
  EXPECT_THAT(Refusal(Header({Sharded("a", {3, 2})}), limits), HasSubstr("RESOURCE_EXHAUSTED"));
}

}  // namespace
}  // namespace tp::server
