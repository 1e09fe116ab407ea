// What the core knows, as messages for clients. Example: *response.mutable_model() = Summary(model);
// Pure; Core's views are read on its thread only.
#pragma once

#include "server/coordinator/core.h"
#include "tp/v1/coordinator.pb.h"

namespace tp::server {

// `mesh`: nullptr where the model has none yet.
v1::ModelSummary Summary(const ModelState& model);
// Of a submission that was only compiled.
v1::ModelSummary DryRunSummary(const Submission& submission, const CompiledModel& compiled);
void DescribeTakenOver(const ModelState& model, v1::TakenOver* proto);
// Everything but the summary and the submission. Takes long for large models.
void Describe(const ModelState& model, v1::GetModelResponse* response);
v1::MeshDescription DescriptionOf(const NamedMesh& mesh, const Core& core);
v1::TensorDescription DescriptionOf(const TensorState& tensor);
// The blocks of all ranks.
void DescribeShards(const TensorState& tensor, const Core& core, v1::DescribeTensorResponse* response);
v1::WorkerDescription DescribeWorker(const WorkerState& worker, const Core& core);

}  // namespace tp::server
