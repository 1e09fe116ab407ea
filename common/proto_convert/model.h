// Messages <-> values of model definitions, weight sources, plans and submissions. Defaults of optional fields are
// filled here (a step of 0 is 1, an eps of 0 is 1e-6, an absent layout is the style's own). Example:
//   TP_ASSIGN_OR_RETURN(Submission submission, SubmissionFromProto(message));
// Sizes and types are checked here; names and graphs are checked when the model is flattened and the plan resolved.
// Pure. All errors are INVALID_ARGUMENT with the field's path.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/model/model.h"
#include "common/proto_convert/layout.h"
#include "tp/v1/model.pb.h"
#include "tp/v1/plan.pb.h"
#include "tp/v1/submission.pb.h"

namespace tp {

absl::StatusOr<Attributes> AttributesFromProto(const google::protobuf::Map<std::string, v1::Attribute>& attributes,
                                               const std::string& field);
void AttributesToProto(const Attributes& attributes, google::protobuf::Map<std::string, v1::Attribute>* proto);

absl::StatusOr<Initializer> InitializerFromProto(const v1::Initializer& initializer, const std::string& field);
void InitializerToProto(const Initializer& initializer, v1::Initializer* proto);

absl::StatusOr<WeightSource> WeightSourceFromProto(const v1::WeightSource& source, const std::string& field);
void WeightSourceToProto(const WeightSource& source, v1::WeightSource* proto);

// Axes are named; whether the mesh has them is checked where a plan is resolved.
absl::StatusOr<ShardingConfig> ShardingFromProto(const v1::ShardingConfig& sharding, const std::string& field);
void ShardingToProto(const ShardingConfig& sharding, v1::ShardingConfig* proto);

// A kind that is given by name becomes its typed configuration.
absl::StatusOr<Module> ModuleFromProto(const v1::Module& module, const std::string& field);
void ModuleToProto(const Module& module, v1::Module* proto);

absl::StatusOr<ModelDef> ModelFromProto(const v1::ModelDefinition& model, const std::string& field);
void ModelToProto(const ModelDef& model, v1::ModelDefinition* proto);

absl::StatusOr<ParallelPlan> PlanFromProto(const v1::ParallelPlan& plan, const std::string& field);
void PlanToProto(const ParallelPlan& plan, v1::ParallelPlan* proto);

// An empty name is accepted: a submit may give one (ValidateModelName checks it then).
absl::StatusOr<Submission> SubmissionFromProto(const v1::Submission& submission);
void SubmissionToProto(const Submission& submission, v1::Submission* proto);

// [A-Za-z0-9][A-Za-z0-9._-]{0,127}.
absl::Status ValidateModelName(const std::string& name, const std::string& field);

}  // namespace tp
