// Commands, staged work and their results <-> messages, both ways: what coordinator and workers say to each other.
// Example: Command command = *CommandFromProto(response.command());
// Pure. Errors are INVALID_ARGUMENT with the field's path.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/program/command.h"
#include "tp/v1/coordinator.pb.h"
#include "tp/v1/worker.pb.h"

namespace tp {

// Longest text of a status on the wire (gRPC drops the cause of a longer one).
inline constexpr size_t kMaxStatusText = 1000;

void StatusToProto(const absl::Status& status, v1::StatusProto* proto);
// A code that is not one of absl's becomes UNKNOWN.
absl::Status StatusFromProto(const v1::StatusProto& proto);
// `text`, cut to kMaxStatusText bytes at a character.
std::string CutStatusText(const std::string& text);

// Milliseconds, 1 at least.
uint32_t TimeoutToProto(absl::Duration timeout);
absl::StatusOr<Sampling> SamplingFromProto(const v1::Sampling& sampling, const std::string& field);
void SamplingToProto(const Sampling& sampling, v1::Sampling* proto);

// On `mesh`.
absl::StatusOr<LoadState> LoadStateFromProto(const v1::LoadState& state, const Mesh& mesh, const std::string& field);
void LoadStateToProto(const LoadState& state, v1::LoadState* proto);

absl::StatusOr<Command> CommandFromProto(const v1::Command& command);
void CommandToProto(const Command& command, v1::Command* proto);
absl::StatusOr<Stage> StageFromProto(const v1::Stage& stage);
void StageToProto(const Stage& stage, v1::Stage* proto);
absl::StatusOr<Ack> AckFromProto(const v1::Ack& ack);
void AckToProto(const Ack& ack, v1::Ack* proto);
absl::StatusOr<StageResult> StageResultFromProto(const v1::StageResult& result);
void StageResultToProto(const StageResult& result, v1::StageResult* proto);

}  // namespace tp
