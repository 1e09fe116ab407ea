// A real cluster for integration tests: `tpctl local up` in a temporary folder, stopped with the object. Programs are
// those of the build under test. Example:
//   Cluster cluster(2);
//   CommandResult result = cluster.Tpctl({"models"});   // result.code, .out, .err
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/tp_client/client.h"

namespace tp::testing {

struct CommandResult {
  int code = -1;
  std::string out, err;
  // TP_CHECKs that stdout is one JSON value.
  nlohmann::json json() const;
};

// Runs a program to its end and returns what it printed. `environment`: NAME=VALUE added to ours.
CommandResult RunCommand(const std::vector<std::string>& words, const std::vector<std::string>& environment = {});

// A program that runs beside the test; killed with the object where it still runs.
class Process {
 public:
  explicit Process(const std::vector<std::string>& words, const std::vector<std::string>& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  int pid() const { return pid_; }
  // What it wrote to stderr so far.
  std::string ErrorsSoFar() const;
  // SIGKILL; returns when it is gone.
  void Kill();
  // Waits for its end. Once.
  CommandResult Wait();

 private:
  int pid_ = 0, out_ = -1, err_ = -1;
};

// A path below the source tree: Source("deploy/demo/kjv").
std::string Source(const std::string& path);
// A program of the build under test.
std::string Program(const std::string& name);

// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Cluster {
 public:
  // TP_CHECKs that it came up. `extra`: more arguments of local up; `environment`: of all its processes.
  explicit Cluster(int workers, const std::vector<std::string>& extra = {},
                   const std::vector<std::string>& environment = {});
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  const std::string& dir() const { return folder_.path(); }
  const std::string& server() const { return server_; }
  // tpctl with --server put before.
  CommandResult Tpctl(std::vector<std::string> words) const;
  // Submits a file; TP_CHECKs success.
  void Submit(const std::string& file, const std::string& name, const std::string& mesh) const;
  // The demo model at a degree, under "kjv<tp>" (and "-bf16"); returns the name.
  std::string SubmitDemo(int tp, const std::string& compute_dtype = "") const;
  std::unique_ptr<client::Client> Connect() const;
  // Process of a worker by its id.
  int WorkerPid(const std::string& id) const;
  // Workers of a model by rank.
  std::vector<std::string> WorkersOf(const std::string& model) const;

 private:
  TemporaryFolder folder_;
  std::string server_;
};

// Calls `condition` until it returns true; false after a generous limit (only a broken product reaches it).
bool Eventually(const std::function<bool()>& condition);

}  // namespace tp::testing
