// tpctl tensor put: distributes a tensor of a file, or registers the local blocks of ranks.
#include <cstdio>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/progress.h"
#include "client/tpctl/tensor_arguments.h"
#include "client/tpctl/tensor_file.h"
#include "client/tpctl/tensor_render.h"
#include "common/base/status.h"

namespace tp::client {
namespace {

// One file, or one for each rank.
absl::StatusOr<std::vector<TensorReader>> OpenFiles(const TensorPutOptions& options, PutTensorOptions* request) {
  const std::string name = options.tensor.empty() ? options.name : options.tensor;
  std::vector<TensorReader> readers;
  if (options.locals.empty()) {
    TP_ASSIGN_OR_RETURN(readers.emplace_back(), TensorReader::Open(options.file, name, !options.tensor.empty()));
    request->shape = readers[0].shape();
  }
  std::set<int> ranks;
  for (const std::string& text : options.locals) {
    TP_ASSIGN_OR_RETURN(const RankFile local, ParseRankFile(text));
    if (!ranks.insert(local.rank).second)
      return absl::InvalidArgumentError(absl::StrCat("--local: rank ", local.rank, " is given twice"));
    TP_ASSIGN_OR_RETURN(readers.emplace_back(), TensorReader::Open(local.file, name, !options.tensor.empty()));
    if (readers.back().dtype() != readers[0].dtype())
      return absl::InvalidArgumentError(absl::StrCat("--local: ", local.file, " holds ",
                                                     std::string(DTypeName(readers.back().dtype())),
                                                     ", the first file ", std::string(DTypeName(readers[0].dtype()))));
    request->locals.push_back({local.rank, readers.back().shape()});
  }
  request->dtype = readers[0].dtype();
  return readers;
}

}  // namespace

absl::Status TensorPut(const GlobalOptions& globals, const TensorPutOptions& options) {
  PutTensorOptions request{.name = options.name, .mesh = options.mesh};
  TP_ASSIGN_OR_RETURN(request.placements, ParsePlacementsOption(options.placements));
  if (options.has_global_shape) {
    if (options.locals.empty())
      return absl::InvalidArgumentError("--global-shape goes with --local; a file has its own shape");
    absl::StatusOr<Shape> shape = ParseShapeText(options.global_shape);
    if (!shape.ok()) return Annotate(shape.status(), "--global-shape");
    request.shape = *std::move(shape);
  }
  if (!options.src_data_rank.empty()) {
    if (!options.locals.empty()) return absl::InvalidArgumentError("--src-data-rank does not go with --local");
    TP_RETURN_IF_ERROR(ParseSourceRank(options.src_data_rank, &request));
  }
  TP_ASSIGN_OR_RETURN(const std::vector<TensorReader> readers, OpenFiles(options, &request));
  int64_t total = 0, done = 0;
  for (const TensorReader& reader : readers) total += reader.bytes();
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  absl::StatusOr<TensorInfo> tensor = absl::UnknownError("not sent");
  {
    ProgressBar bar("sending " + options.name);
    tensor = client->PutTensor(request, [&](size_t index, int64_t offset, int64_t size, char* out) {
      bar.Update(done += size, total);
      return readers[index].Read(offset, size, out);
    });
  }
  TP_RETURN_IF_ERROR(tensor.status());
  std::fputs(TensorText(*tensor, "is there", globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
