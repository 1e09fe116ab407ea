// tpctl: parses the command line and runs one command. Exit 0 on success, 1 on a failed request, 2 on wrong usage.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>

#include "client/tpctl/commands.h"
#include "client/tpctl/completion.h"
#include "client/tpctl/tensor_arguments.h"
#include "common/base/names.h"
#include "common/rpc/channel.h"

namespace {

using namespace tp::client;  // NOLINT: the commands

// Commands that later versions bring. They answer UNIMPLEMENTED and are not in --help.
bool IsUnbuilt(const std::string& name) {
  for (const char* unbuilt : {"profile", "embed", "export", "events", "diagnose"})
    if (name == unbuilt) return true;
  return false;
}

// The command: the first word that is neither a flag nor the value of a global one.
std::string FirstWord(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--server" || word == "--timeout" || word == "--output-format" || word.rfind("--tls-", 0) == 0) {
      ++i;
    } else if (word.rfind("-", 0) != 0) {
      return word;
    }
  }
  return "";
}

// What others wrote may stand in a message: nothing of it steers the terminal or ends the text.
std::string Printable(absl::string_view text) {
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&printable, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      printable += c;
    }
  }
  return printable;
}

int Finish(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "tpctl: %s: %s\n", std::string(absl::StatusCodeToString(status.code())).c_str(),
               Printable(status.message()).c_str());
  return 1;
}

// Adds a command with its help; `run` is set to the body of the one that is given.
using AddCommand =
    std::function<CLI::App*(CLI::App* parent, const char* name, const char* help, std::function<absl::Status()> body)>;

constexpr char kPlacementsHelp[] = "As tp=S(0) or dp=R,tp=S(1): R, S(d), P(op), SS(d,k), IS(d,parts), GS(d,g); ";

// The options live as long as the program: the bodies run after parsing.
void AddMeshCommands(CLI::App* app, const GlobalOptions& globals, const AddCommand& command) {
  CLI::App* mesh = app->add_subcommand("mesh", "Named meshes of workers, which tensors lie on");
  mesh->require_subcommand(1);
  mesh->fallthrough();
  static MeshCreateOptions create;
  CLI::App* sub = command(mesh, "create", "Makes a mesh and connects its workers",
                          [&globals] { return MeshCreate(globals, create); });
  sub->add_option("NAME", create.name, "Name")->required();
  sub->add_option("AXES", create.axes, "Axes, outermost first, as dp=2,tp=2")->required();
  sub->add_option("--workers", create.workers, "Ids by rank, as w0,w1; chosen where left out");
  command(mesh, "list", "Lists meshes", [&globals] { return MeshList(globals); });
  static std::string name;
  command(mesh, "delete", "Ends a mesh that has no tensors", [&globals] { return MeshDelete(globals, name); })
      ->add_option("NAME", name, "Name")
      ->required();
}

void AddModelCommands(CLI::App* app, const GlobalOptions& globals, const AddCommand& command) {
  CLI::App* model = app->add_subcommand("model", "A submit step by step: create, then init and parallelize");
  model->require_subcommand(1);
  model->fallthrough();
  static ModelCreateOptions create;
  CLI::App* sub = command(model, "create", "Keeps a definition and the sources of its weights",
                          [&globals] { return ModelCreate(globals, create); });
  sub->add_option("FILE", create.file, "Submission: .pb, .textproto or .json")->required();
  sub->add_option("--name", create.name, "Name in place of the file's");
  static ModelInitOptions init;
  sub = command(model, "init", "Gives the states their first values; loads the model where it is parallelized",
                [&globals] { return ModelInit(globals, init); });
  sub->add_option("MODEL", init.name, "Name")->required();
  sub->add_option("--buffer-device", init.buffer_device, "Where buffers are made: cpu or device (default device)")
      ->check(CLI::IsMember({"cpu", "device"}));
  static ModelParallelizeOptions parallelize;
  sub = command(model, "parallelize", "Places the model by a plan, once; loads it where it is initialised",
                [&globals] { return ModelParallelize(globals, parallelize); });
  sub->add_option("MODEL", parallelize.name, "Name")->required();
  sub->add_option("FILE", parallelize.file,
                  "Submission file of which the plan is taken; that of `create` where left out");
  sub->add_option("--mesh", parallelize.mesh, "Axes in place of the plan's, as tp=4");
}

// Returns a check of what CLI11 can't: "" or what is wrong.
std::function<std::string()> AddTensorCommands(CLI::App* app, const GlobalOptions& globals, const AddCommand& command) {
  CLI::App* tensor = app->add_subcommand("tensor", "Named tensors that are distributed over a mesh");
  tensor->require_subcommand(1);
  tensor->fallthrough();
  const auto placements = [](CLI::App* sub, std::string* text, const char* absent) {
    return sub->add_option("--placements", *text, std::string(kPlacementsHelp) + absent);
  };
  constexpr const char* kAbsentR = "an axis that is not named is R";

  static TensorPutOptions put;
  CLI::App* sub_put = command(tensor, "put", "Distributes a tensor of a file, or registers local blocks",
                              [&globals] { return TensorPut(globals, put); });
  sub_put->add_option("NAME", put.name, "Name")->required();
  CLI::Option* file = sub_put->add_option("FILE", put.file, ".npy or .safetensors");
  CLI::Option* local =
      sub_put->add_option("--local", put.locals, "The block of each rank, P included")->type_name("RANK=FILE");
  CLI::Option* global_shape =
      sub_put->add_option("--global-shape", put.global_shape, "As 5x3; inferred from equal blocks where left out");
  global_shape->needs(local);
  file->excludes(local);
  sub_put->add_option("--mesh", put.mesh, "Name of the mesh")->required();
  placements(sub_put, &put.placements, kAbsentR);
  sub_put->add_option("--tensor", put.tensor, "Its name in a safetensors file (default NAME, or the only one)");
  sub_put->add_option("--src-data-rank", put.src_data_rank,
                      "Of equal copies, the coordinate that gets the bytes and passes them on (default 0); none: each "
                      "gets them by itself");

  static TensorCreateOptions create;
  CLI::App* sub = command(tensor, "create", "Makes a tensor by an initializer, slice by slice on each rank",
                          [&globals] { return TensorCreate(globals, create); });
  sub->add_option("NAME", create.name, "Name; with the seed it fixes random values, on any mesh")->required();
  sub->add_option("--init", create.init, InitializerForms())->required();
  sub->add_option("--shape", create.shape, "As 5x3; [] is a scalar")->required();
  sub->add_option("--dtype", create.dtype, "F32, BF16, F16, F64, I64, I32, U8, BOOL (default F32)");
  sub->add_option("--mesh", create.mesh, "Name of the mesh")->required();
  placements(sub, &create.placements, kAbsentR);
  sub->add_option("--seed", create.seed, "Of random values (default 0)")->check(CLI::NonNegativeNumber);

  static TensorRedistributeOptions move;
  sub = command(tensor, "redistribute", "Changes the layout, or moves to another mesh; prints steps and bytes",
                [&globals] { return TensorRedistribute(globals, move); });
  sub->add_option("NAME", move.name, "Name")->required();
  sub->add_option("--mesh", move.mesh, "Target mesh (default its own)");
  placements(sub, &move.placements, "an axis that is not named keeps its placement, on another mesh it is R");
  sub->add_option("--as", move.as, "Name of the result; it takes the tensor's place where left out");

  static TensorGetOptions get;
  sub = command(tensor, "get", "Fetches the global value; P is reduced on the way out",
                [&globals] { return TensorGet(globals, get); });
  sub->add_option("NAME", get.name, "Name")->required();
  sub->add_option("--output", get.output, "File: .npy or .safetensors; without it small tensors are printed")
      ->type_name("FILE");

  static TensorShardsOptions shards;
  sub = command(tensor, "shards", "Shows which rank holds what, with a picture of 1-D and 2-D layouts",
                [&globals] { return TensorShards(globals, shards); });
  sub->add_option("NAME", shards.name, "Name")->required();
  sub->add_flag("--values", shards.values, "Also the raw local blocks, terms of P as they are");

  command(tensor, "list", "Lists tensors", [&globals] { return TensorList(globals); });
  static std::string name;
  command(tensor, "delete", "Frees a tensor on all its workers", [&globals] { return TensorDelete(globals, name); })
      ->add_option("NAME", name, "Name")
      ->required();

  static TensorSaveOptions save;
  sub = command(tensor, "save", "Writes safetensors files; the workers write their own blocks",
                [&globals] { return TensorSave(globals, save); });
  sub->add_option("DIR", save.directory, "Folder that all workers see, under their model root")->required();
  sub->add_option("NAMES", save.names, "Tensors")->required();

  static TensorLoadOptions load;
  sub = command(tensor, "load", "Reads the tensors of a folder; each worker reads its own slices",
                [&globals] { return TensorLoad(globals, load); });
  sub->add_option("DIR", load.directory, "Folder, or a .safetensors file, under the workers' model root")->required();
  sub->add_option("NAMES", load.names, "Only these (default all)");
  sub->add_option("--mesh", load.mesh, "Name of the mesh")->required();
  placements(sub, &load.placements, kAbsentR);

  return [=] {
    put.has_global_shape = global_shape->count() > 0;
    if (sub_put->parsed() && file->count() == 0 && local->count() == 0)
      return std::string("tensor put: one of FILE and --local is required");
    return std::string();
  };
}

}  // namespace

int main(int argc, char** argv) {
  tp::QuietGrpcLog();
  CLI::App app("tpctl drives Tensorplane: tensor-parallel models on a coordinator and its workers.", "tpctl");
  app.require_subcommand(1);
  app.fallthrough();
  app.set_help_all_flag("--help-all", "Help of all commands");

  GlobalOptions globals;
  app.add_option("--server", globals.server,
                 "HOST:PORT of the coordinator (or TPCTL_SERVER, or what `local up` left in its default folder)");
  app.add_option("--timeout", globals.timeout_seconds, "Seconds before a request is given up; 0 = never")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--output-format", globals.output_format, "table or json")->check(CLI::IsMember({"table", "json"}));

  app.add_option("--tls-cert", globals.tls.cert, "Certificate to show to a coordinator that asks for one (PEM)")
      ->type_name("FILE")
      ->envname("TP_TLS_CERT");
  app.add_option("--tls-key", globals.tls.key, "Its private key (PEM)")->type_name("FILE")->envname("TP_TLS_KEY");
  app.add_option("--tls-ca", globals.tls.ca, "Authority that signed the coordinator's certificate; turns TLS on")
      ->type_name("FILE")
      ->envname("TP_TLS_CA");

  std::function<absl::Status()> run;
  const AddCommand command = [&](CLI::App* parent, const char* name, const char* help,
                                 std::function<absl::Status()> body) {
    CLI::App* sub = parent->add_subcommand(name, help);
    sub->fallthrough();
    sub->footer(
        "Of every command: --server HOST:PORT, --timeout SECONDS, --output-format table|json, --tls-ca FILE, "
        "--tls-cert FILE --tls-key FILE");
    sub->callback([&run, body] { run = body; });
    return sub;
  };

  CLI::App* local = app.add_subcommand("local", "A coordinator and workers on this machine");
  local->require_subcommand(1);
  local->fallthrough();
  LocalOptions up, down;
  CLI::App* sub =
      command(local, "up", "Starts them and returns when all are healthy", [&] { return LocalUp(globals, up); });
  sub->add_option("--workers", up.workers, "Worker processes (default 2)")->check(CLI::Range(1, 64));
  sub->add_option("--dir", up.dir,
                  "Folder of the endpoint, the logs and the stored models (default ~/.local/state/tensorplane)")
      ->type_name("DIR");
  sub->add_option("--threads", up.threads, "Threads of each worker; 0 = cores / workers")->check(CLI::Range(0, 1024));
  sub->add_option("--model-root", up.model_root, "Weights must lie under it")->type_name("DIR");
  sub->add_option("--device", up.device, "cpu, or cuda: worker i on GPU i")->check(CLI::IsMember({"cpu", "cuda"}));
  sub->add_option(
      "--coordinator-flag", up.coordinator_flags,
      "Passed on to tp-coordinator, as --coordinator-flag=--time-scale=2; its TP_ variables do not reach it, but "
      "for TP_TLS_*");
  sub->add_option("--worker-flag", up.worker_flags,
                  "Passed on to every tp-worker; TP_ variables are not, but for TP_TLS_* and TP_CUDA_MODULE");
  sub = command(local, "down", "Stops them", [&] { return LocalDown(globals, down); });
  sub->add_option("--dir", down.dir, "Folder that `local up` was given")->type_name("DIR");

  ImportCommandOptions import;
  sub = command(&app, "import", "Turns a Hugging Face folder into a submission file (offline)",
                [&] { return Import(globals, import); });
  sub->add_option("DIR", import.dir, "Folder with config.json and safetensors")->required();
  sub->add_option("--tp", import.tp, "Tensor-parallel degree of the plan (default 1)")->check(CLI::Range(1, 1 << 20));
  sub->add_option("--plan", import.plan, "standard (default), or auto: the one of least cost that is found")
      ->check(CLI::IsMember({"standard", "auto"}));
  sub->add_flag("--sequence-parallel", import.sequence_parallel, "Cut the sequence between the plan's weights");
  sub->add_option("--memory-limit", import.memory_limit, "Bytes that the busiest rank may need")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--compute-dtype", import.compute_dtype, "F32 or BF16")->check(CLI::IsMember({"F32", "BF16"}));
  sub->add_option("--out", import.out,
                  "File to write: .pb, .textproto or .json; standard output (textproto) without it")
      ->type_name("FILE");

  ExplainOptions explain;
  sub = command(&app, "explain", "Shows modules, placements, collectives, cost and memory of a submission (offline)",
                [&] { return Explain(globals, explain); });
  sub->add_option("FILE", explain.file, "Submission")->required();
  sub->add_option("--mesh", explain.mesh, "Axes in place of the file's, as tp=4");
  sub->add_option(
      "--shape", explain.shapes,
      "Shape of an input, as ids=1x16; inputs that are left out share its free sizes, others are 1 (the first) and 16");
  sub->add_option("--against", explain.against, "Another submission: shows what differs")->type_name("FILE");
  sub->add_option("--plan", explain.plan, "auto: in place of the file's plan the one of least cost that is found")
      ->check(CLI::IsMember({"auto"}));
  sub->add_flag("--sequence-parallel", explain.sequence_parallel, "With --plan auto: cut the sequence between weights");
  sub->add_option("--memory-limit", explain.memory_limit, "Bytes that the busiest rank may need")
      ->check(CLI::NonNegativeNumber);

  SubmitFileOptions submit;
  sub = command(&app, "submit", "Loads a model; returns when it is READY or has failed",
                [&] { return SubmitFile(globals, submit); });
  sub->add_option("FILE", submit.file, "Submission: .pb, .textproto or .json")->required();
  sub->add_option("--name", submit.name, "Name in place of the file's");
  sub->add_option("--mesh", submit.mesh, "Axes in place of the file's, as tp=4");
  sub->add_flag("--dry-run", submit.dry_run, "Validates and compiles only");
  sub->add_flag("--replace", submit.replace,
                "Takes the place of the READY model of this name, which serves until then; the same weights are moved "
                "from rank to rank, not read again");

  std::string model;
  command(&app, "models", "Lists models", [&] { return ListModels(globals); });
  command(&app, "describe", "Shows one model: state, parameters by rank, workers",
          [&] { return Describe(globals, model); })
      ->add_option("MODEL", model, "Name")
      ->required();
  command(&app, "delete", "Frees a model on all its workers", [&] { return Delete(globals, model); })
      ->add_option("MODEL", model, "Name")
      ->required();

  ForwardOptions forward;
  sub = command(&app, "forward", "Runs a model once", [&] { return Forward(globals, forward); });
  sub->add_option("MODEL", forward.model, "Name")->required();
  sub->add_option(
         "--input", forward.inputs,
         "NAME=FILE (.npy, .safetensors: whole batches), NAME=1,2,3 (one row), or NAME=@TENSOR: a named tensor "
         "on a mesh of the model's axes and workers")
      ->type_name("NAME=FILE");
  sub->add_option("--input-shard", forward.input_shards, "An input as the block of each rank")
      ->type_name("NAME:RANK=FILE");
  sub->add_option("--input-placements", forward.input_placements,
                  "NAME:tp=S(1): placements of these blocks, P included; an axis that is not named is R");
  sub->add_option("--output", forward.output,
                  "File for the values: .safetensors, or .npy for a single output (JSON holds none); of shards a "
                  ".safetensors file with OUTPUT.rank0, OUTPUT.rank1, ...")
      ->type_name("FILE");
  sub->add_option("--output-form", forward.output_form,
                  "full (default): global tensors; shards: each rank's block with offset and placements")
      ->check(CLI::IsMember({"full", "shards"}));

  GenerateCommandOptions generate;
  sub = command(&app, "generate", "Generates text (or token ids) after a prompt",
                [&] { return Generate(globals, generate); });
  sub->add_option("MODEL", generate.generate.model, "Name")->required();
  CLI::Option* text = sub->add_option("--prompt", generate.generate.prompt, "Text; the begin token is put before it");
  CLI::Option* ids = sub->add_option("--prompt-ids", generate.prompt_ids, "Token ids, as 256,65,110; taken as given");
  text->excludes(ids);
  sub->add_option("--max-new-tokens", generate.generate.max_new_tokens, "At most so many; 0 = as fit, at most 256")
      ->check(CLI::Range(0, 1 << 30));
  sub->add_flag("--ignore-eos", generate.generate.ignore_eos, "Go on after an end token");
  sub->add_option("--temperature", generate.generate.temperature, "0 = greedy");
  sub->add_option("--top-k", generate.generate.top_k, "Only the k most likely; 0 = all");
  sub->add_option("--top-p", generate.generate.top_p, "Only the most likely of this probability; 0 = all");
  sub->add_option("--seed", generate.generate.seed, "Equal seeds give equal tokens")->check(CLI::NonNegativeNumber);

  VerifyOptions verify;
  sub = command(&app, "verify", "Compares a model with the same weights on one rank, module by module",
                [&] { return Verify(globals, verify); });
  sub->add_option("MODEL", verify.model, "Name")->required();
  sub->add_option("--input", verify.inputs, "As of forward; seeded values where left out")->type_name("NAME=FILE");
  sub->add_option("--tolerance", verify.tolerance,
                  "Largest difference allowed, relative for values above 1 (default 1e-4; BF16: 2e-2, relative down to "
                  "0.01)")
      ->check(CLI::NonNegativeNumber);

  AddModelCommands(&app, globals, command);
  AddMeshCommands(&app, globals, command);
  const std::function<std::string()> check_tensor = AddTensorCommands(&app, globals, command);

  command(&app, "workers", "Lists workers", [&] { return ListWorkers(globals); });
  command(&app, "status", "Shows the coordinator's state", [&] { return Status(globals); });
  command(&app, "version", "Shows the version", [&] { return Version(globals); });

  std::string shell;
  command(&app, "completion", "Prints a script that completes commands, flags and values in a shell",
          [&] {
            std::fputs((shell == "zsh" ? ZshCompletion(app) : BashCompletion(app)).c_str(), stdout);
            return absl::OkStatus();
          })
      ->add_option("SHELL", shell, "As in: source <(tpctl completion bash)")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));

  app.set_version_flag("--version", TP_VERSION);
  std::vector<std::string> names;
  for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(known->get_name());
  const std::string word = FirstWord(argc, argv);
  if (!word.empty() && std::find(names.begin(), names.end(), word) == names.end()) {
    if (IsUnbuilt(word)) return Finish(absl::UnimplementedError("tpctl " + word + " is not built yet"));
    std::fprintf(stderr, "tpctl: there is no command '%s'; commands: %s\nRun with --help for more information.\n",
                 word.c_str(), tp::JoinNames(names).c_str());
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  generate.has_prompt = text->count() > 0;
  generate.has_prompt_ids = ids->count() > 0;
  std::string wrong = check_tensor();
  if (app.got_subcommand("forward") && forward.inputs.empty() && forward.input_shards.empty())
    wrong = "forward: one of --input and --input-shard is required";
  if (app.got_subcommand("generate") && !generate.has_prompt && !generate.has_prompt_ids)
    wrong = "generate: one of --prompt and --prompt-ids is required";
  if (wrong.empty()) return Finish(run());
  std::fprintf(stderr, "%s\nRun with --help for more information.\n", wrong.c_str());
  return 2;
}
