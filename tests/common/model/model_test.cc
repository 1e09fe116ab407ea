#include "common/model/model.h"

#include <gtest/gtest.h>

namespace tp {
namespace {

TEST(StyleTextTest, FormsAreExact) {
  EXPECT_EQ(StyleText(ColwiseParallel{}),
            "ColwiseParallel(input_layouts=(Replicate(),), output_layouts=(Shard(dim=-1),), use_local_output=True)");
  EXPECT_EQ(StyleText(RowwiseParallel{}),
            "RowwiseParallel(input_layouts=(Shard(dim=-1),), output_layouts=(Replicate(),), use_local_output=True)");
}

TEST(StyleTextTest, DimsStayAsWritten) {
  RowwiseParallel style;
  style.output_layouts = Placement::Shard(1);
  style.use_local_output = false;
  EXPECT_EQ(StyleText(style),
            "RowwiseParallel(input_layouts=(Shard(dim=-1),), output_layouts=(Shard(dim=1),), use_local_output=False)");
  EXPECT_EQ(StyleName(UnbuiltStyle{"SequenceParallel"}), "SequenceParallel");
}

}  // namespace
}  // namespace tp
