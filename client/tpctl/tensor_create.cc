// tpctl tensor create: a tensor made by an initializer, slice by slice on each rank.
#include <cstdio>

#include "client/tpctl/commands.h"
#include "client/tpctl/tensor_arguments.h"
#include "client/tpctl/tensor_render.h"
#include "common/base/status.h"

namespace tp::client {

absl::Status TensorCreate(const GlobalOptions& globals, const TensorCreateOptions& options) {
  CreateTensorOptions request{.name = options.name, .mesh = options.mesh, .seed = options.seed};
  TP_ASSIGN_OR_RETURN(request.placements, ParsePlacementsOption(options.placements));
  absl::StatusOr<DType> dtype = ParseDType(options.dtype);
  if (!dtype.ok()) return Annotate(dtype.status(), "--dtype");
  request.dtype = *dtype;
  absl::StatusOr<Shape> shape = ParseShapeText(options.shape);
  if (!shape.ok()) return Annotate(shape.status(), "--shape");
  request.shape = *std::move(shape);
  const absl::Status fits = CheckedBytes(request.shape, request.dtype).status();
  if (!fits.ok()) return Annotate(fits, "--shape");
  TP_ASSIGN_OR_RETURN(request.initializer, ParseInitializer(options.init));
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(const TensorInfo tensor, client->CreateTensor(request));
  std::fputs(TensorText(tensor, "is there", globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
