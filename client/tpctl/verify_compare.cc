#include "client/tpctl/verify_compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/tpctl/render.h"

namespace tp::client {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void Measure(const HostTensor& reference, const HostTensor& parallel, VerifyRow* row) {
  const HostTensor wide = ConvertTo(reference, DType::kF64);
  const int64_t count = ElementCount(reference.shape);
  for (int64_t i = 0; i < count; ++i) {
    const double magnitude = std::abs(wide.data<double>()[i]);
    if (std::isfinite(magnitude)) row->max_value = std::max(row->max_value, magnitude);
  }
  if (reference.shape != parallel.shape || reference.dtype != parallel.dtype) {
    row->max_difference = kInfinity;
    return;
  }
  const HostTensor other = ConvertTo(parallel, DType::kF64);
  for (int64_t i = 0; i < count; ++i) {
    const double a = wide.data<double>()[i], b = other.data<double>()[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double difference = std::abs(a - b);
    row->max_difference = std::isnan(difference) ? kInfinity : std::max(row->max_difference, difference);
  }
}

std::string Number(double value) { return absl::StrFormat("%.3g", value); }

std::string WhereText(const VerifyRow& row) {
  return row.path.empty() ? "the model's output" : absl::StrCat(row.path, " (", row.kind, ")");
}

}  // namespace

Tolerance DefaultTolerance(DType compute) {
  if (compute == DType::kBF16 || compute == DType::kF16) return {2e-2, 1e-2};
  return {};
}

const VerifyRow* VerifySummary::first() const {
  for (const std::vector<VerifyRow>* rows : {&modules, &outputs}) {
    for (const VerifyRow& row : *rows) {
      if (row.exceeds()) return &row;
    }
  }
  return nullptr;
}

VerifySummary Compare(const std::vector<NamedTensor>& reference, const std::vector<NamedTensor>& parallel,
                      const std::map<std::string, std::string>& kinds, const Tolerance& tolerance) {
  VerifySummary summary;
  summary.tolerance = tolerance.value;
  std::map<std::string, const HostTensor*> others;
  for (const NamedTensor& output : parallel) others[output.name] = &output.tensor;
  for (const NamedTensor& output : reference) {
    VerifyRow row;
    const size_t colon = output.name.find(':');
    row.output = colon == std::string::npos ? output.name : output.name.substr(colon + 1);
    if (colon != std::string::npos) row.path = output.name.substr(0, colon);
    if (const auto kind = kinds.find(row.path); kind != kinds.end() && colon != std::string::npos) {
      row.kind = kind->second;
    }
    if (const auto other = others.find(output.name); other != others.end()) {
      Measure(output.tensor, *other->second, &row);
    } else {
      row.max_difference = kInfinity;
    }
    row.allowed = IsFloating(output.tensor.dtype) ? tolerance.value * std::max(tolerance.floor, row.max_value) : 0;
    (colon == std::string::npos ? summary.outputs : summary.modules).push_back(std::move(row));
  }
  return summary;
}

std::string ExceedingText(const VerifyRow& row) {
  return absl::StrCat(WhereText(row), ": ", row.path.empty() ? absl::StrCat("'", row.output, "'") : row.output,
                      " differs by ", Number(row.max_difference), ", allowed are ", Number(row.allowed));
}

std::string VerifyText(const VerifySummary& summary, bool json) {
  const VerifyRow* first = summary.first();
  if (json) {
    JsonNode::List modules, outputs;
    for (const VerifyRow& row : summary.modules) {
      modules.push_back({JsonNode::Members{{"path", {row.path}},
                                           {"kind", {row.kind}},
                                           {"output", {row.output}},
                                           {"max_difference", {row.max_difference}},
                                           {"max_value", {row.max_value}}}});
    }
    for (const VerifyRow& row : summary.outputs) {
      outputs.push_back({JsonNode::Members{
          {"name", {row.output}}, {"max_difference", {row.max_difference}}, {"max_value", {row.max_value}}}});
    }
    const std::string where = first == nullptr ? "" : first->path.empty() ? first->output : first->path;
    return JsonText({JsonNode::Members{{"model", {summary.model}},
                                       {"tolerance", {summary.tolerance}},
                                       {"equal", {summary.equal()}},
                                       {"first_exceeding", {where}},
                                       {"modules", {std::move(modules)}},
                                       {"outputs", {std::move(outputs)}}}});
  }
  std::vector<std::vector<std::string>> rows = {
      {"MODULE", "KIND", "OUTPUT", "LARGEST DIFFERENCE", "LARGEST VALUE", ""}};
  for (const std::vector<VerifyRow>* list : {&summary.modules, &summary.outputs}) {
    for (const VerifyRow& row : *list) {
      rows.push_back({row.path.empty() ? "(model)" : row.path, row.kind, row.output, Number(row.max_difference),
                      Number(row.max_value), row.exceeds() ? "EXCEEDS" : ""});
    }
  }
  const std::string within = absl::StrFormat(" one rank within %g", summary.tolerance);
  if (first == nullptr) return absl::StrCat(Table(rows), summary.model, " equals", within, "\n");
  return absl::StrCat(Table(rows), summary.model, " DIFFERS FROM", within, ", first in ", ExceedingText(*first), "\n");
}

}  // namespace tp::client
