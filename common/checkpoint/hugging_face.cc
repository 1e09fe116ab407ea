#include "common/checkpoint/hugging_face.h"

#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/folder.h"
#include "common/checkpoint/json.h"
#include "common/checkpoint/llama_config.h"
#include "common/checkpoint/llama_model.h"

namespace tp {
namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;
constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr std::string_view kLayers = "model.layers.";
constexpr char kHead[] = "lm_head.weight";

absl::Status CheckOptions(const ImportOptions& options) {
  if (options.degree < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the degree must be at least 1, not ", options.degree));
  }
  if (options.compute_dtype.has_value() && *options.compute_dtype != DType::kF32 &&
      *options.compute_dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("the compute dtype must be F32 or BF16, not ", std::string(DTypeName(*options.compute_dtype))));
  }
  if (options.plan != "standard") {
    return absl::InvalidArgumentError(absl::StrCat("unknown plan \"", options.plan, "\"; known is \"standard\""));
  }
  return absl::OkStatus();
}

absl::StatusOr<LlamaConfig> ReadConfig(const std::string& root) {
  if (!PathExists(root)) return absl::NotFoundError(absl::StrCat("folder ", root, " does not exist"));
  if (!IsDirectory(root)) return absl::InvalidArgumentError(absl::StrCat(root, " is not a folder"));
  const std::string path = absl::StrCat(root, "/config.json");
  if (!PathExists(path)) {
    return absl::NotFoundError(absl::StrCat(root, " has no config.json: not a Hugging Face checkpoint"));
  }
  TP_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path, kMaxConfigBytes));
  absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return Annotate(json.status(), path);
  return ParseLlamaConfig(*json, path);
}

// A tensor of a layer that config.json has, which no module of ours takes, would be left out of the result without a
// word (biases without attention_bias, norms of queries): refused. Tensors of other places change nothing.
absl::Status CheckNothingIsLeftOut(const std::map<std::string, CheckpointTensor>& tensors,
                                   const std::map<std::string, Shape>& states, int64_t layers) {
  for (const auto& [name, tensor] : tensors) {
    if (states.count(name) > 0 || absl::EndsWith(name, ".rotary_emb.inv_freq")) continue;
    std::string_view rest = name;
    if (rest.substr(0, kLayers.size()) != kLayers) continue;
    rest.remove_prefix(kLayers.size());
    rest = rest.substr(0, rest.find('.'));
    int64_t layer = 0;
    if (!absl::SimpleAtoi(absl::string_view(rest.data(), rest.size()), &layer) || layer < 0 || layer >= layers) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.file, ": tensor \"", name, "\" has no place in the model that config.json describes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, WeightSource>> FindWeights(const std::string& root, const LlamaConfig& config) {
  TP_ASSIGN_OR_RETURN(auto tensors, ListCheckpoint(root));
  const std::map<std::string, Shape> states = LlamaStates(config);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  std::map<std::string, WeightSource> weights;
  for (const auto& [path, shape] : states) {
    WeightSource& source = weights[path];
    if (config.tied && path == kHead) {
      source.kind = WeightSource::Kind::kAlias;
      source.path = kEmbedding;
      continue;
    }
    auto found = tensors.find(path);
    if (found == tensors.end()) {
      return absl::NotFoundError(absl::StrCat(root, " has no tensor \"", path,
                                              "\", which config.json asks for; the nearest are ",
                                              JoinNames(NearestNames(path, names))));
    }
    const SafetensorsTensor& tensor = found->second.tensor;
    if (tensor.shape != shape) {
      return absl::InvalidArgumentError(absl::StrCat(found->second.file, ": tensor \"", path, "\" is ",
                                                     ShapeText(tensor.shape), ", but config.json makes it ",
                                                     ShapeText(shape)));
    }
    if (!IsFloating(tensor.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(found->second.file, ": tensor \"", path, "\" is ",
                                                     std::string(DTypeName(tensor.dtype)), ", not a floating type"));
    }
    source.kind = WeightSource::Kind::kFile;
    source.path = found->second.file;
    source.tensor = path;
  }
  TP_RETURN_IF_ERROR(CheckNothingIsLeftOut(tensors, states, config.layers));
  return weights;
}

// The byte tokenizer fits a vocabulary of 256 bytes and a begin token, unless the folder says otherwise.
std::string TokenizerOf(const std::string& root, const LlamaConfig& config) {
  for (const char* file : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json"}) {
    if (PathExists(absl::StrCat(root, "/", file))) return "";
  }
  return config.vocab_size == 257 && config.bos_token_id == 256 ? "bytes" : "";
}

// The folder's last name, with what a model's name can't hold replaced by '-'.
std::string NameOf(const std::string& root) {
  std::string name = root.substr(root.rfind('/') + 1).substr(0, 128);
  for (char& c : name) {
    const bool allowed =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (!allowed) c = '-';
  }
  if (name.empty() || name[0] == '.' || name[0] == '_' || name[0] == '-')
    name = absl::StrCat("model", name).substr(0, 128);
  return name;
}

}  // namespace

absl::StatusOr<Submission> ImportHuggingFace(const std::string& folder, const ImportOptions& options) {
  TP_RETURN_IF_ERROR(CheckOptions(options));
  const std::string root = AbsolutePath(folder);
  TP_ASSIGN_OR_RETURN(LlamaConfig config, ReadConfig(root));
  Submission submission;
  TP_ASSIGN_OR_RETURN(submission.weights, FindWeights(root, config));
  submission.name = options.name.empty() ? NameOf(root) : options.name;
  submission.model = BuildLlamaModel(config, TokenizerOf(root, config));
  submission.plan = options.sequence_parallel ? SequenceLlamaPlan(options.degree) : StandardLlamaPlan(options.degree);
  submission.compute_dtype = options.compute_dtype.value_or(DType::kF32);
  submission.names_compute_dtype = options.compute_dtype.has_value();
  return submission;
}

}  // namespace tp
