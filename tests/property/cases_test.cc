// The worked cases of SEMANTICS 8 (3, 5, 7, 11) and the cases from the field (1, 2, 3, 5, 12, 26) that plans alone
// decide: each planned, executed by the judge on numbers written here, and compared with numbers written here.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/property/layout_judge.h"

namespace tp {
namespace {

using testing::JudgedValues;
using testing::LayoutJudge;
using Numbers = std::vector<uint32_t>;

// One tensor on a mesh; values are set and read rank by rank, in the order of the rank's block.
class Tensor {
 public:
  Tensor(const char* mesh, const Shape& shape, const char* placements)
      : mesh_(*Mesh::Parse(mesh)), shape_(shape), judge_(mesh_, {shape}) {
    values_.layout = &judge_.Layout(*ParsePlacements(mesh_, placements));
    values_.value.assign(static_cast<size_t>(mesh_.rank_count()), Numbers(static_cast<size_t>(ElementCount(shape)), 7));
  }
  void Set(int rank, const Numbers& block) {
    const std::vector<size_t> positions = PositionsOf(rank);
    ASSERT_EQ(positions.size(), block.size());
    for (size_t i = 0; i < block.size(); ++i) values_.value[static_cast<size_t>(rank)][positions[i]] = block[i];
  }
  // 0, 1, 2, ... as the global tensor, which every rank with R holds.
  void SetRange(uint32_t factor = 1) {
    for (Numbers& value : values_.value) {
      for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<uint32_t>(i) * factor;
    }
  }
  Numbers Get(int rank) const {
    Numbers block;
    for (const size_t i : PositionsOf(rank)) block.push_back(values_.value[static_cast<size_t>(rank)][i]);
    return block;
  }
  // The ops that were run, and their bytes.
  std::string Redistribute(const char* placements) {
    const absl::StatusOr<RedistributePlan> plan =
        PlanRedistribute(mesh_, DType::kF32, shape_, values_.layout->placements, *ParsePlacements(mesh_, placements));
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::string text, error;
    for (const RedistributeStep& step : plan->steps) {
      absl::StrAppend(&text, text.empty() ? "" : " ", std::string(RedistributeOpName(step.op)), "(",
                      StepAxesText(mesh_, step), ")=", judge_.CountBytes(step, 0));
      values_ = judge_.Run(values_, step, judge_.DefinedIn({}), &error);
      EXPECT_EQ(error, "");
    }
    EXPECT_EQ(values_.layout->placements, *ParsePlacements(mesh_, placements));
    return text;
  }

 private:
  std::vector<size_t> PositionsOf(int rank) const {
    std::vector<size_t> positions;
    for (size_t i = 0; i < static_cast<size_t>(ElementCount(shape_)); ++i) {
      if ((values_.layout->held[static_cast<size_t>(rank)][i / 64] >> (i % 64) & 1) != 0) positions.push_back(i);
    }
    return positions;
  }

  const Mesh mesh_;
  const Shape shape_;
  LayoutJudge judge_;
  JudgedValues values_;
};

Numbers Range(uint32_t begin, uint32_t end) {
  Numbers numbers;
  for (uint32_t i = begin; i < end; ++i) numbers.push_back(i);
  return numbers;
}

TEST(WorkedCaseTest, Case3QuartersAndMovesOnTwoAxes) {
  Tensor tensor("dp=2,tp=2", {8, 8}, "");
  tensor.SetRange(4);
  EXPECT_EQ(tensor.Redistribute("dp=P(sum),tp=P(sum)"), "divide(dp,tp)=0");
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(tensor.Get(rank), Range(0, 64));
  EXPECT_EQ(tensor.Redistribute(""), "all_reduce(dp,tp)=384");
  tensor.SetRange();
  EXPECT_EQ(tensor.Redistribute("dp=S(0),tp=S(0)"), "slice(dp,tp)=0");
  EXPECT_EQ(tensor.Get(1), Range(16, 32));
  // A block of 8 rows and 2 columns, of which 2 rows are here.
  EXPECT_EQ(tensor.Redistribute("dp=S(1),tp=S(1)"), "permute(dp,tp)=48");
  EXPECT_EQ(tensor.Get(1), (Numbers{2, 3, 10, 11, 18, 19, 26, 27, 34, 35, 42, 43, 50, 51, 58, 59}));
  tensor.Redistribute("tp=S(0)");
  EXPECT_EQ(tensor.Get(2), Range(0, 32));
  tensor.Redistribute("dp=S(0)");
  EXPECT_EQ(tensor.Get(2), Range(32, 64));
  Tensor terms("dp=2,tp=2", {8, 8}, "dp=P(sum)");
  terms.SetRange();
  EXPECT_EQ(terms.Redistribute("dp=S(1)"), "reduce_scatter(dp)=128");
  EXPECT_EQ(terms.Get(3)[0], 8u);
}

TEST(WorkedCaseTest, Case5AllToAll) {
  Tensor tensor("tp=2", {8, 4}, "tp=S(0)");
  tensor.Set(0, Range(0, 16));
  tensor.Set(1, Range(0, 16));
  EXPECT_EQ(tensor.Redistribute("tp=S(1)"), "all_to_all(tp)=32");
  EXPECT_EQ(tensor.Get(0), (Numbers{0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13}));
  EXPECT_EQ(tensor.Get(1), (Numbers{2, 3, 6, 7, 10, 11, 14, 15, 2, 3, 6, 7, 10, 11, 14, 15}));
  Tensor uneven("tp=2", {5, 3}, "tp=S(0)");
  uneven.Set(0, Range(0, 9));
  uneven.Set(1, Range(9, 15));
  // Rank 0 lacks two rows of two columns.
  EXPECT_EQ(uneven.Redistribute("tp=S(1)"), "all_to_all(tp)=16");
  EXPECT_EQ(uneven.Get(0), (Numbers{0, 1, 3, 4, 6, 7, 9, 10, 12, 13}));
  EXPECT_EQ(uneven.Get(1), (Numbers{2, 5, 8, 11, 14}));
}

TEST(WorkedCaseTest, Case7AndField1And2FiveRows) {
  Tensor rows("tp=4", {5, 10}, "");
  rows.SetRange();
  EXPECT_EQ(rows.Redistribute("tp=S(0)"), "slice(tp)=0");
  EXPECT_EQ(rows.Get(0), Range(0, 20));
  EXPECT_EQ(rows.Get(1), Range(20, 40));
  EXPECT_EQ(rows.Get(2), Range(40, 50));
  EXPECT_EQ(rows.Get(3), Numbers());
  // The empty rank receives all.
  EXPECT_EQ(rows.Redistribute(""), "all_gather(tp)=200");
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(rows.Get(rank), Range(0, 50));
  Tensor nested("dp=2,tp=2", {5, 3}, "dp=S(0),tp=S(0)");
  nested.Set(0, Range(0, 6));
  nested.Set(1, Range(6, 9));
  nested.Set(2, Range(9, 12));
  nested.Set(3, Range(12, 15));
  EXPECT_EQ(nested.Redistribute(""), "all_gather(dp,tp)=48");
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(nested.Get(rank), Range(0, 15));
}

TEST(WorkedCaseTest, Case11FusedHeads) {
  Tensor heads("tp=2", {12}, "");
  heads.SetRange();
  heads.Redistribute("tp=IS(0,[8,2,2])");
  EXPECT_EQ(heads.Get(0), (Numbers{0, 1, 2, 3, 8, 10}));
  EXPECT_EQ(heads.Get(1), (Numbers{4, 5, 6, 7, 9, 11}));
  // {0-5} lacks 4 and 5.
  EXPECT_EQ(heads.Redistribute("tp=S(0)"), "permute(tp)=8");
  EXPECT_EQ(heads.Get(0), Range(0, 6));
  EXPECT_EQ(heads.Redistribute("tp=IS(0,3)"), "permute(tp)=8");
  EXPECT_EQ(heads.Get(0), (Numbers{0, 1, 4, 5, 8, 9}));
  EXPECT_EQ(heads.Redistribute(""), "all_gather(tp)=24");
  EXPECT_EQ(heads.Get(1), Range(0, 12));
}

TEST(FieldCaseTest, Case3ShardTableOfTwoElementsOnEightRanks) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=4");
  const Placements placements = *ParsePlacements(mesh, "dp=S(0),tp=S(0)");
  const int64_t sizes[] = {1, 0, 0, 0, 1, 0, 0, 0};
  const int64_t offsets[] = {0, 2, 2, 2, 1, 2, 2, 2};
  Tensor tensor("dp=2,tp=4", {2}, "dp=S(0),tp=S(0)");
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(LocalShape({2}, placements, mesh, mesh.CoordinateOf(rank)), (Shape{sizes[rank]}));
    EXPECT_EQ(LocalOffset({2}, placements, mesh, mesh.CoordinateOf(rank)), (Shape{offsets[rank]}));
  }
  tensor.Set(0, {5});
  tensor.Set(4, {6});
  tensor.Redistribute("");
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(tensor.Get(rank), (Numbers{5, 6}));
}

TEST(FieldCaseTest, Case5AZeroInTheShape) {
  for (const char* from : {"", "tp=S(0)", "tp=S(1)", "tp=P(sum)", "tp=SS(1,2)", "tp=IS(0,2)", "tp=GS(1,2)"}) {
    for (const char* to : {"", "tp=S(0)", "tp=S(1)", "tp=P(sum)", "tp=SS(1,2)", "tp=IS(0,2)", "tp=GS(1,2)"}) {
      Tensor tensor("tp=4", {0, 3}, from);
      tensor.Redistribute(to);
      EXPECT_EQ(tensor.Get(3), Numbers());
    }
  }
}

TEST(FieldCaseTest, Case12ExtremesOfUnevenTerms) {
  for (const char* to : {"", "tp=S(0)"}) {
    for (const bool max : {true, false}) {
      Tensor tensor("tp=4", {5}, max ? "tp=P(max)" : "tp=P(min)");
      tensor.Set(0, {3, 9, 4, 8, 5});
      tensor.Set(1, {4, 8, 5, 7, 6});
      tensor.Set(2, {5, 7, 6, 6, 7});
      tensor.Set(3, {6, 6, 7, 5, 8});
      tensor.Redistribute(to);
      const Numbers all = max ? Numbers{6, 9, 7, 8, 8} : Numbers{3, 6, 4, 5, 5};
      const bool whole = std::string(to).empty();
      EXPECT_EQ(tensor.Get(0), whole ? all : Numbers(all.begin(), all.begin() + 2));
      EXPECT_EQ(tensor.Get(2), whole ? all : Numbers(all.begin() + 4, all.end()));
      EXPECT_EQ(tensor.Get(3), whole ? all : Numbers());
    }
  }
}

TEST(FieldCaseTest, Case26OneAllToAllOfAnEighth) {
  Tensor tensor("dp=2,tp=2", {2, 4, 4}, "dp=S(1),tp=S(1)");
  for (int rank = 0; rank < 4; ++rank) tensor.Set(rank, Range(0, 8));
  EXPECT_EQ(tensor.Redistribute("dp=S(1),tp=S(2)"), "all_to_all(tp)=16");
}

}  // namespace
}  // namespace tp
