#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include "common/base/status.h"
#include "worker/runtime/sampler.h"
#include "worker/runtime/work.h"

namespace tp::worker {
namespace {

// The tokens of one step, those of all its sequences one after the other.
struct StepTokens {
  struct Part {
    uint64_t id = 0;
    bool samples = false;  // its last token's logits choose a new one
  };
  std::vector<Part> parts;
  std::vector<int64_t> ids, positions, rows;
  std::vector<SequenceSpan> spans;
  const BoundProgram* bound = nullptr;
};

class Decoding {
 public:
  Decoding(const WorkContext& context, LoadedModel& model, const Decode& decode)
      : context_(context), model_(model), table_(*model.sequences), decode_(decode) {
    for (const Operand& operand : model.step->program().operands) {
      if (operand.kind == OperandKind::kInput) ids_value_ = operand.value;
      if (operand.kind == OperandKind::kPositions) positions_value_ = operand.value;
      if (operand.kind == OperandKind::kRows) rows_value_ = operand.value;
    }
  }

  // Joins and leaves, then the first step's tokens.
  absl::Status Begin() {
    if (decode_.steps < 1 || decode_.steps > 8) {
      return absl::InvalidArgumentError(absl::StrCat("decode: steps ", decode_.steps, ", allowed are 1 to 8"));
    }
    for (uint64_t id : decode_.leaves) table_.Leave(id);
    for (const JoinSequence& join : decode_.joins) TP_RETURN_IF_ERROR(table_.Join(join));
    std::map<uint64_t, std::vector<int64_t>> pieces;
    std::set<uint64_t> last;
    for (const PrefillPiece& piece : decode_.pieces) {
      const Sequence* sequence = table_.Find(piece.sequence_id);
      if (sequence == nullptr) continue;
      if (piece.token_ids.empty() || sequence->prefilled || last.contains(piece.sequence_id)) {
        return absl::InvalidArgumentError(
            absl::StrCat("decode: piece of sequence ", piece.sequence_id,
                         piece.token_ids.empty() ? " has no tokens" : " comes after its last"));
      }
      std::vector<int64_t>& ids = pieces[piece.sequence_id];
      ids.insert(ids.end(), piece.token_ids.begin(), piece.token_ids.end());
      if (piece.last) last.insert(piece.sequence_id);
    }
    tokens_ = {};
    for (auto& [id, sequence] : table_.sequences()) {
      if (const auto piece = pieces.find(id); piece != pieces.end()) {
        TP_RETURN_IF_ERROR(Add(id, sequence, piece->second, last.contains(id)));
      } else if (sequence.prefilled) {
        TP_RETURN_IF_ERROR(Add(id, sequence, {&sequence.next_token, 1}, true));
      }
    }
    return BindTokens();
  }

  // One token of every sequence that is past its prompt.
  absl::Status Continue() {
    tokens_ = {};
    for (auto& [id, sequence] : table_.sequences()) {
      if (sequence.prefilled) TP_RETURN_IF_ERROR(Add(id, sequence, {&sequence.next_token, 1}, true));
    }
    return BindTokens();
  }

  bool has_tokens() const { return !tokens_.ids.empty(); }

  // Runs the step and takes its tokens. `transport` is set where the communicator failed.
  absl::Status Step(bool* transport) {
    const ProgramExecutor& executor = *model_.step;
    const StepContext step{
        context_.device, context_.stream,      context_.communicator, context_.arena,   context_.pace, true,
        tokens_.spans,   context_.collectives, context_.graphs,       context_.counters};
    started_.clear();
    for (const StepTokens::Part& part : tokens_.parts) started_.push_back(part.id);
    const absl::Status operands = SetOperands(step);
    const StepOutcome outcome = model_.graphs.Execute(executor, step, *tokens_.bound, context_.epoch);
    *transport = !outcome.transport.ok();
    TP_RETURN_IF_ERROR(outcome.transport);
    TP_RETURN_IF_ERROR(operands);
    TP_RETURN_IF_ERROR(outcome.local);
    TP_RETURN_IF_ERROR(Choose(step));
    Take();
    return absl::OkStatus();
  }

  // Ends what took part in the step that failed, and what would have, had the command begun.
  void DropParticipants(bool before_first_step) {
    std::set<uint64_t> ids;
    for (const StepTokens::Part& part : tokens_.parts) ids.insert(part.id);
    for (const auto& [id, sequence] : table_.sequences()) {
      if (sequence.prefilled) ids.insert(id);
    }
    if (before_first_step) {
      for (const JoinSequence& join : decode_.joins) ids.insert(join.sequence_id);
      for (const PrefillPiece& piece : decode_.pieces) ids.insert(piece.sequence_id);
    }
    ids.insert(started_.begin(), started_.end());
    for (uint64_t id : ids) table_.Leave(id);
  }

  std::vector<SequenceTokens> TakeResults() {
    std::vector<SequenceTokens> results;
    for (auto& [id, result] : results_) results.push_back(std::move(result));
    return results;
  }

 private:
  absl::Status Add(uint64_t id, Sequence& sequence, absl::Span<const int64_t> ids, bool samples) {
    TP_RETURN_IF_ERROR(table_.Reserve(sequence, static_cast<int64_t>(ids.size())));
    const auto first = static_cast<int64_t>(tokens_.ids.size());
    tokens_.spans.push_back({first, static_cast<int64_t>(ids.size()), sequence.past, sequence.pages});
    for (size_t i = 0; i < ids.size(); ++i) {
      tokens_.ids.push_back(ids[i]);
      tokens_.positions.push_back(sequence.past + static_cast<int64_t>(i));
    }
    if (samples) tokens_.rows.push_back(static_cast<int64_t>(tokens_.ids.size()) - 1);
    tokens_.parts.push_back({id, samples});
    return absl::OkStatus();
  }

  absl::Status BindTokens() {
    if (tokens_.ids.empty()) return absl::OkStatus();
    const auto tokens = static_cast<int64_t>(tokens_.ids.size());
    std::map<int, Shape> shapes{{ids_value_, {1, tokens}}, {rows_value_, {static_cast<int64_t>(tokens_.rows.size())}}};
    if (positions_value_ >= 0) shapes[positions_value_] = {1, tokens};
    TP_ASSIGN_OR_RETURN(const Bindings bindings, model_.step->BindOperands(shapes));
    TP_ASSIGN_OR_RETURN(tokens_.bound, model_.step->Bind(bindings));
    return context_.arena.Reserve(context_.device, tokens_.bound->memory.total_bytes);
  }

  absl::Status SetOperands(const StepContext& step) {
    auto set = [&](int value, const std::vector<int64_t>& numbers) {
      if (value < 0) return absl::OkStatus();
      return model_.step->SetOperand(step, *tokens_.bound, value, numbers.data(),
                                     static_cast<int64_t>(numbers.size() * sizeof(int64_t)));
    };
    TP_RETURN_IF_ERROR(set(ids_value_, tokens_.ids));
    TP_RETURN_IF_ERROR(set(positions_value_, tokens_.positions));
    return set(rows_value_, tokens_.rows);
  }

  // The next token of each row, chosen on the device where it can, else here from the copied logits.
  absl::Status Choose(const StepContext& step) {
    chosen_.resize(tokens_.rows.size());
    if (chosen_.empty()) return absl::OkStatus();
    const ValueView view = model_.step->View(step, *tokens_.bound, model_.step->program().outputs[0].value);
    if (view.view.dtype != DType::kF32 || view.view.shape.empty() || view.view.shape.back() < 1) {
      return absl::InternalError(absl::StrCat("logits of ", std::string(DTypeName(view.view.dtype)),
                                              ShapeText(view.view.shape), ", expected F32[1, rows, vocabulary]"));
    }
    const int64_t vocabulary = view.view.shape.back(), rows = static_cast<int64_t>(chosen_.size());
    if (ElementCount(view.view.shape) != rows * vocabulary) {
      return absl::InternalError(absl::StrCat("logits of shape ", ShapeText(view.view.shape), " for ", rows, " rows"));
    }
    std::vector<SamplingRow> sampling;
    for (size_t i = 0; i < tokens_.parts.size(); ++i) {
      if (!tokens_.parts[i].samples) continue;
      const Sequence& sequence = *table_.Find(tokens_.parts[i].id);
      const Sampling& how = sequence.sampling;
      sampling.push_back({how.temperature, how.top_k, how.top_p, how.seed, sequence.past + tokens_.spans[i].count});
    }
    if (context_.device.HasSampling()) {
      TP_RETURN_IF_ERROR(context_.device.SampleTokens(
          context_.stream, {DType::kF32, view.view.data, {rows, vocabulary}}, sampling, chosen_.data()));
      return context_.device.Synchronize(context_.stream);
    }
    logits_.resize(static_cast<size_t>(rows * vocabulary));
    TP_RETURN_IF_ERROR(context_.device.CopyToHost(context_.stream, view.view.data, logits_.data(),
                                                  static_cast<int64_t>(logits_.size() * sizeof(float))));
    TP_RETURN_IF_ERROR(context_.device.Synchronize(context_.stream));
    for (size_t row = 0; row < chosen_.size(); ++row) {
      chosen_[row] = SampleToken(
          absl::MakeConstSpan(logits_).subspan(row * static_cast<size_t>(vocabulary), static_cast<size_t>(vocabulary)),
          sampling[row]);
    }
    return absl::OkStatus();
  }

  // Advances the sequences by what was chosen.
  void Take() {
    size_t row = 0;
    for (size_t i = 0; i < tokens_.parts.size(); ++i) {
      const StepTokens::Part& part = tokens_.parts[i];
      Sequence& sequence = *table_.Find(part.id);
      sequence.past += tokens_.spans[i].count;
      if (!part.samples) continue;
      const int64_t token = chosen_[row++];
      sequence.prefilled = true;
      SequenceTokens& result = results_[part.id];
      result.sequence_id = part.id;
      if (sequence.generated < sequence.max_new_tokens) {
        sequence.next_token = token;
        ++sequence.generated;
        result.token_ids.push_back(sequence.next_token);
        if (std::count(sequence.stop_ids.begin(), sequence.stop_ids.end(), sequence.next_token) > 0) {
          result.finish_reason = "stop";
        }
      }
      if (result.finish_reason.empty() && sequence.generated >= sequence.max_new_tokens) {
        result.finish_reason = "length";
      }
      if (!result.finish_reason.empty()) table_.Leave(part.id);
    }
  }

  const WorkContext& context_;
  LoadedModel& model_;
  SequenceTable& table_;
  const Decode& decode_;
  int ids_value_ = -1, positions_value_ = -1, rows_value_ = -1;
  StepTokens tokens_;
  std::vector<uint64_t> started_;  // sequences of the last step that was begun
  std::vector<float> logits_;      // [rows, vocabulary], where the host samples
  std::vector<int64_t> chosen_;    // of each row
  std::map<uint64_t, SequenceTokens> results_;
};

absl::Status CheckRanks(const std::vector<int>& ranks, const Communicator& communicator) {
  if (ranks.empty()) return absl::OkStatus();
  const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<int>()) == ranks.end();
  if (ascending && ranks.front() >= 0 && ranks.back() < communicator.size() &&
      std::binary_search(ranks.begin(), ranks.end(), communicator.rank())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("decode: ranks must ascend within [0, ", communicator.size(),
                                                 ") and hold rank ", communicator.rank()));
}

}  // namespace

WorkOutcome ExecuteDecode(const WorkContext& context, LoadedModel* model, const Decode& decode,
                          const absl::Status& refused) {
  WorkOutcome outcome;
  if (absl::Status valid = CheckRanks(decode.ranks, context.communicator); !valid.ok()) {
    outcome.status = std::move(valid);
    outcome.failed_rank = context.communicator.rank();
    return outcome;
  }
  CommandHeaders headers(context, model == nullptr ? 0 : model->fingerprint, &outcome, decode.ranks);
  absl::Status local = refused;
  if (local.ok() && model->step == nullptr) {
    local = absl::FailedPreconditionError(absl::StrCat("model '", model->name, "' does not generate"));
  }
  if (!local.ok()) {
    headers.Agree(0, false, local);
    return outcome;
  }
  Decoding decoding(context, *model, decode);
  local = decoding.Begin();
  if (!headers.Agree(0, false, local)) {
    decoding.DropParticipants(true);
    return outcome;
  }
  // Header i + 1 closes step i and opens step i + 1; the last one closes the command.
  for (int i = 0; i < decode.steps && decoding.has_tokens(); ++i) {
    bool transport = false;
    local = decoding.Step(&transport);
    if (transport) {
      outcome.transport = true;
      outcome.status = local;
      decoding.DropParticipants(false);
      return outcome;
    }
    const bool last = i + 1 == decode.steps;
    if (local.ok() && !last) local = decoding.Continue();
    if (!headers.Agree(static_cast<uint32_t>(i + 1), last, local)) {
      decoding.DropParticipants(false);
      return outcome;
    }
  }
  outcome.decode.sequences = decoding.TakeResults();
  return outcome;
}

}  // namespace tp::worker
