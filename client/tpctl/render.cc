#include "client/tpctl/render.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/tpctl/path_groups.h"
#include "client/tpctl/short_style.h"
#include "common/base/count.h"

namespace tp::client {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json MeshJson(const Mesh& mesh) {
  Json axes = Json::object();
  for (const MeshAxis& axis : mesh.axes()) axes[axis.name] = axis.size;
  return axes;
}

Json SummaryJson(const ModelSummary& model) {
  return {{"name", model.name},
          {"state", model.state},
          {"mesh", MeshJson(model.mesh)},
          {"error", model.error},
          {"fingerprint", model.fingerprint},
          {"parameter_bytes", model.parameter_bytes},
          {"loaded_bytes", model.loaded_bytes},
          {"total_bytes", model.total_bytes}};
}

Json CollectivesJson(const std::vector<CollectiveRecord>& collectives) {
  Json list = Json::array();
  for (const CollectiveRecord& record : collectives) {
    list.push_back({{"module", record.module}, {"op", record.op}, {"axis", record.axis}, {"bytes", record.bytes}});
  }
  return list;
}

Json ModulesJson(const std::vector<ModuleDescription>& modules) {
  Json list = Json::array();
  for (const ModuleDescription& module : modules)
    list.push_back({{"path", module.path},
                    {"kind", module.kind},
                    {"style", module.style},
                    {"inputs", module.inputs},
                    {"outputs", module.outputs}});
  return list;
}

// Equal layers are one row.
std::string ModulesTable(const std::vector<ModuleDescription>& modules) {
  std::vector<PathRow> all;
  for (const ModuleDescription& module : modules)
    all.push_back({module.path, absl::StrCat(module.kind, "\n", absl::StrJoin(module.inputs, "\n"), "\n\n",
                                             absl::StrJoin(module.outputs, "\n"), "\n\n", module.style)});
  std::vector<std::vector<std::string>> rows = {{"MODULE", "KIND", "INPUTS", "OUTPUTS", "STYLE"}};
  for (const PathGroup& group : GroupTrees(all)) {
    const ModuleDescription& module = modules[group.first];
    rows.push_back({group.path.empty() ? "(root)" : group.path, module.kind, absl::StrJoin(module.inputs, "\n"),
                    absl::StrJoin(module.outputs, "\n"), ShortStyle(module.style)});
  }
  return Table(rows, kTableWidth);
}

std::string ParametersTable(const ModelDescription& model) {
  std::vector<PathRow> all;
  std::vector<std::vector<std::string>> cells;
  for (const ParameterDescription& parameter : model.parameters) {
    std::vector<std::string> locals;
    for (const LocalBlock& block : parameter.local) locals.push_back(ShapeText(block.shape));
    cells.push_back({"", absl::StrCat(std::string(DTypeName(parameter.dtype)), ShapeText(parameter.shape)),
                     PlacementsText(model.summary.mesh, parameter.placements), absl::StrJoin(locals, " ")});
    all.push_back({parameter.name, absl::StrJoin(cells.back(), "\n")});
  }
  std::vector<std::vector<std::string>> rows = {{"PARAMETER", "TYPE", "PLACEMENTS", "LOCAL SHAPES BY RANK"}};
  for (const PathGroup& group : GroupRows(all)) {
    rows.push_back(cells[group.first]);
    rows.back()[0] = group.path;
  }
  return Table(rows, kTableWidth);
}

// The first values of a tensor, for people.
std::string Name(std::string_view dtype) { return std::string(dtype); }

Json ToJson(const JsonNode& node) {
  if (const auto* members = std::get_if<JsonNode::Members>(&node.value)) {
    Json object = Json::object();
    for (const auto& [name, member] : *members) object[name] = ToJson(member);
    return object;
  }
  if (const auto* list = std::get_if<JsonNode::List>(&node.value)) {
    Json array = Json::array();
    for (const JsonNode& element : *list) array.push_back(ToJson(element));
    return array;
  }
  if (const auto* number = std::get_if<double>(&node.value)) {
    if (std::isfinite(*number)) return *number;
    return std::isnan(*number) ? "NaN" : *number > 0 ? "Infinity" : "-Infinity";
  }
  if (const auto* integer = std::get_if<int64_t>(&node.value)) return *integer;
  if (const auto* flag = std::get_if<bool>(&node.value)) return *flag;
  return std::get<std::string>(node.value);
}

}  // namespace

std::string JsonText(const JsonNode& node) { return Dump(ToJson(node)); }

std::vector<std::string> Wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines = {""};
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t space = text.find(' ', begin);
    const std::string word = text.substr(begin, space == std::string::npos ? std::string::npos : space - begin);
    begin += word.size() + 1;
    if (lines.back().empty()) {
      lines.back() = word;
    } else if (lines.back().size() + 1 + word.size() <= width) {
      absl::StrAppend(&lines.back(), " ", word);
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

std::string Table(const std::vector<std::vector<std::string>>& rows, size_t width) {
  std::vector<size_t> widths;
  std::vector<std::vector<std::vector<std::string>>> cells;  // of each row, of each cell its lines
  size_t columns = 0;
  for (const auto& row : rows) columns = std::max(columns, row.size());
  widths.resize(columns);
  for (const auto& row : rows) {
    cells.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      cells.back().push_back(absl::StrSplit(row[i], '\n'));
      if (width > 0 && i + 1 == columns) continue;  // pads nothing
      for (const std::string& line : cells.back().back()) widths[i] = std::max(widths[i], line.size());
    }
  }
  size_t before_last = 0;
  for (size_t i = 0; i + 1 < columns; ++i) before_last += widths[i] + 2;
  std::string text;
  for (auto& row : cells) {
    std::vector<std::string> beneath;
    if (width > 0 && row.size() == columns && before_last + row.back()[0].size() > width) {
      const size_t indent = std::min(row[0][0].find_first_not_of(' '), row[0][0].size()) + 4;
      for (const std::string& line : Wrapped(row.back()[0], width - std::min(indent, width / 2)))
        beneath.push_back(std::string(beneath.empty() ? indent : indent + 2, ' ') + line);
      row.pop_back();
    }
    size_t lines = 1;
    for (const auto& cell : row) lines = std::max(lines, cell.size());
    for (size_t at = 0; at < lines; ++at) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string piece = at < row[i].size() ? row[i][at] : "";
        line += piece;
        if (i + 1 < row.size()) line += std::string(widths[i] - piece.size() + 2, ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    for (const std::string& line : beneath) text += line + "\n";
  }
  return text;
}

std::string BytesText(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string ModelsText(const std::vector<ModelSummary>& models, bool json) {
  if (json) {
    Json list = Json::array();
    for (const ModelSummary& model : models) list.push_back(SummaryJson(model));
    return Dump({{"models", list}});
  }
  std::vector<std::vector<std::string>> rows = {{"NAME", "STATE", "MESH", "PARAMETERS", "ERROR"}};
  for (const ModelSummary& model : models)
    rows.push_back({model.name, model.state, model.mesh.ToString(), BytesText(model.parameter_bytes), model.error});
  return Table(rows);
}

std::string SubmitText(const SubmitResult& result, bool dry_run, bool json) {
  const std::optional<TakenOver>& taken = result.taken_over;
  if (json) {
    Json answer = {{"model", SummaryJson(result.model)}, {"warnings", result.warnings}, {"dry_run", dry_run}};
    if (taken.has_value()) {
      answer["taken_over"] = {{"states", taken->states},
                              {"bytes", taken->bytes},
                              {"wire_bytes", taken->wire_bytes},
                              {"bytes_read", taken->bytes_read}};
    }
    return Dump(answer);
  }
  std::string text;
  for (const std::string& warning : result.warnings) absl::StrAppend(&text, "warning: ", warning, "\n");
  if (dry_run)
    absl::StrAppend(&text, result.model.name, " is valid on ", result.model.mesh.ToString(), "; nothing was changed\n");
  else
    absl::StrAppend(&text, result.model.name, " is ", result.model.state, " on ", result.model.mesh.ToString(), ", ",
                    BytesText(result.model.parameter_bytes), " of parameters over its ranks\n");
  if (taken.has_value()) {
    absl::StrAppend(&text, "took over ", CountText(taken->states, "state"), ", ", BytesText(taken->bytes),
                    ", of which ", BytesText(taken->wire_bytes), " moved between workers; read ", taken->bytes_read,
                    " bytes of files\n");
  }
  return text;
}

std::string StepText(const ModelSummary& model, const std::vector<std::string>& warnings, bool json) {
  if (json) return Dump({{"model", SummaryJson(model)}, {"warnings", warnings}});
  std::string text;
  for (const std::string& warning : warnings) absl::StrAppend(&text, "warning: ", warning, "\n");
  absl::StrAppend(&text, model.name, " is ", model.state);
  if (model.mesh.rank_count() > 0 && model.mesh.axis_count() > 0) absl::StrAppend(&text, " on ", model.mesh.ToString());
  return absl::StrCat(text, "\n");
}

std::string DescribeText(const ModelDescription& model, bool json) {
  if (json) {
    Json parameters = Json::array();
    for (const ParameterDescription& parameter : model.parameters) {
      Json local = Json::array();
      for (const LocalBlock& block : parameter.local)
        local.push_back({{"rank", block.rank}, {"shape", block.shape}, {"offset", block.offset}});
      parameters.push_back({{"name", parameter.name},
                            {"shape", parameter.shape},
                            {"dtype", Name(DTypeName(parameter.dtype))},
                            {"placements", PlacementsText(model.summary.mesh, parameter.placements)},
                            {"buffer", parameter.buffer},
                            {"local", local}});
    }
    Json workers = Json::array();
    for (const ModelWorker& worker : model.workers)
      workers.push_back({{"id", worker.id},
                         {"rank", worker.rank},
                         {"bytes_read", worker.bytes_read},
                         {"parameter_bytes", worker.parameter_bytes}});
    Json inputs = Json::array();
    for (const InputType& input : model.inputs) {
      std::vector<std::string> dims;
      for (const Dim& dim : input.shape) dims.push_back(dim.ToString());
      inputs.push_back({{"name", input.name}, {"dtype", Name(DTypeName(input.dtype))}, {"shape", dims}});
    }
    Json object = SummaryJson(model.summary);
    object["generates"] = model.generates;
    object["inputs"] = inputs;
    object["parameters"] = parameters;
    object["modules"] = ModulesJson(model.modules);
    object["workers"] = workers;
    return Dump(object);
  }
  std::string text = absl::StrCat(model.summary.name, ": ", model.summary.state);
  if (model.summary.mesh.axis_count() == 0) {  // created, step by step: no plan has placed it yet
    absl::StrAppend(&text, "; `tpctl model parallelize ", model.summary.name, "` places it on a mesh\n");
  } else {
    absl::StrAppend(&text, " on ", model.summary.mesh.ToString(), "\nfingerprint ", model.summary.fingerprint, "\n");
  }
  if (!model.summary.error.empty()) absl::StrAppend(&text, "error: ", model.summary.error, "\n");
  for (const InputType& input : model.inputs)
    absl::StrAppend(&text, "input ", input.name, ": ", Name(DTypeName(input.dtype)), SymShapeText(input.shape), "\n");
  if (model.parameters.empty() && model.modules.empty()) return text;
  absl::StrAppend(&text, "\n", ParametersTable(model), "\n", ModulesTable(model.modules), "\n");
  std::vector<std::vector<std::string>> rows = {{"RANK", "WORKER", "READ FROM FILES", "PARAMETERS IN MEMORY"}};
  for (const ModelWorker& worker : model.workers)
    rows.push_back(
        {absl::StrCat(worker.rank), worker.id, BytesText(worker.bytes_read), BytesText(worker.parameter_bytes)});
  return text + Table(rows);
}

std::string ValuesText(const HostTensor& tensor) {
  constexpr int64_t kShown = 8;
  const HostTensor wide = ConvertTo(tensor, IsFloating(tensor.dtype) ? DType::kF64 : DType::kI64);
  const int64_t count = ElementCount(tensor.shape);
  std::vector<std::string> parts;
  for (int64_t i = 0; i < std::min(count, kShown); ++i)
    parts.push_back(IsFloating(tensor.dtype) ? absl::StrFormat("%.6g", wide.data<double>()[i])
                                             : absl::StrCat(wide.data<int64_t>()[i]));
  return absl::StrCat("[", absl::StrJoin(parts, ", "), count > kShown ? ", ..." : "", "]");
}

std::string ForwardText(const ForwardResult& result, bool json) {
  if (json) {
    Json outputs = Json::array();
    for (const NamedTensor& output : result.outputs)
      outputs.push_back(
          {{"name", output.name}, {"shape", output.tensor.shape}, {"dtype", Name(DTypeName(output.tensor.dtype))}});
    return Dump({{"outputs", outputs},
                 {"collectives", CollectivesJson(result.collectives)},
                 {"wire_bytes", result.wire_bytes},
                 {"duration_us", result.duration_us}});
  }
  std::vector<std::vector<std::string>> rows = {{"OUTPUT", "TYPE", "VALUES"}};
  for (const NamedTensor& output : result.outputs)
    rows.push_back({output.name, absl::StrCat(Name(DTypeName(output.tensor.dtype)), ShapeText(output.tensor.shape)),
                    ValuesText(output.tensor)});
  int64_t bytes = 0;
  for (const CollectiveRecord& record : result.collectives) bytes += record.bytes;
  return absl::StrCat(Table(rows), CountText(result.collectives.size(), "collective"), ", ", BytesText(bytes), ", ",
                      absl::StrFormat("%.1f ms\n", static_cast<double>(result.duration_us) / 1000));
}

std::string WorkersText(const std::vector<WorkerInfo>& workers, bool json) {
  if (json) {
    Json list = Json::array();
    for (const WorkerInfo& worker : workers) {
      Json models = Json::array();
      for (size_t i = 0; i < worker.models.size(); ++i)
        models.push_back({{"name", worker.models[i]}, {"rank", worker.ranks[i]}});
      Json meshes = Json::array();
      for (size_t i = 0; i < worker.meshes.size(); ++i)
        meshes.push_back({{"name", worker.meshes[i]}, {"rank", worker.mesh_ranks[i]}});
      list.push_back({{"id", worker.id},
                      {"healthy", worker.healthy},
                      {"reason", worker.reason},
                      {"device", worker.device},
                      {"host", worker.host},
                      {"pid", worker.pid},
                      {"version", worker.version},
                      {"memory_limit_bytes", worker.memory_limit_bytes},
                      {"used_bytes", worker.used_bytes},
                      {"models", models},
                      {"meshes", meshes}});
    }
    return Dump({{"workers", list}});
  }
  std::vector<std::vector<std::string>> rows = {
      {"WORKER", "HEALTHY", "DEVICE", "HOST", "PID", "USED", "MODELS", "MESHES", "REASON"}};
  for (const WorkerInfo& worker : workers) {
    std::vector<std::string> models, meshes;
    for (size_t i = 0; i < worker.models.size(); ++i)
      models.push_back(absl::StrCat(worker.models[i], " (rank ", worker.ranks[i], ")"));
    for (size_t i = 0; i < worker.meshes.size(); ++i)
      meshes.push_back(absl::StrCat(worker.meshes[i], " (rank ", worker.mesh_ranks[i], ")"));
    rows.push_back({worker.id, worker.healthy ? "yes" : "no", worker.device, worker.host, absl::StrCat(worker.pid),
                    BytesText(worker.used_bytes), absl::StrJoin(models, ", "), absl::StrJoin(meshes, ", "),
                    worker.reason});
  }
  return Table(rows);
}

std::string StatusText(const StatusInfo& status, const std::string& server, bool json) {
  if (json)
    return Dump({{"server", server},
                 {"version", status.version},
                 {"term", status.term},
                 {"uptime_ms", status.uptime_ms},
                 {"workers_healthy", status.workers_healthy},
                 {"workers", status.workers},
                 {"models_ready", status.models_ready},
                 {"models", status.models},
                 {"requests", status.requests},
                 {"meshes", status.meshes},
                 {"tensors", status.tensors}});
  return absl::StrFormat(
      "coordinator %s: version %s, term %d, up %.1f s\nworkers: %d of %d healthy\nmodels: %d of %d ready\n"
      "meshes: %d\ntensors: %d\nrequests: %d\n",
      server, status.version, status.term, static_cast<double>(status.uptime_ms) / 1000, status.workers_healthy,
      status.workers, status.models_ready, status.models, status.meshes, status.tensors, status.requests);
}

std::string GenerateJson(const GenerateSummary& summary) {
  return Dump({{"text", summary.text}, {"token_ids", summary.token_ids}, {"finish_reason", summary.finish_reason}});
}

std::string VersionText(const std::string& version, bool json) {
  return json ? Dump({{"version", version}}) : absl::StrCat("tpctl ", version, "\n");
}

}  // namespace tp::client
