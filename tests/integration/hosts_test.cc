// Several hosts: network namespaces on one bridge, with TLS between programs. Skipped where these can't be made (no
// root).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/authority.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// With a sanitizer programs are too slow for their usual limits, and time says nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSlow = true;
#elif defined(__has_feature)
constexpr bool kSlow = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSlow = false;
#endif

constexpr char kIp[] = "/usr/sbin/ip";

// `ip` with the words of a line.
bool Ip(const std::string& line, std::string* error = nullptr) {
  const Words words = absl::StrSplit(line, ' ');
  const CommandResult result = RunCommand(Words{kIp} + words);
  if (error != nullptr) *error = absl::StrCat("ip ", line, ": ", result.err);
  return result.code == 0;
}

// Hosts 10.77.0.1, 10.77.0.2, ... on one bridge, which is in a namespace too, so that nothing of this machine's own
// network changes.
class Network {
 public:
  // TP_CHECKs all but the first steps; see error().
  explicit Network(int hosts) : prefix_(absl::StrCat("tp", getpid())) {
    if (access(kIp, X_OK) != 0) {
      error_ = "there is no /usr/sbin/ip";
      return;
    }
    if (!Ip(absl::StrCat("netns add ", prefix_, "-net"), &error_)) return;
    made_.push_back(prefix_ + "-net");
    if (!Ip(absl::StrCat("-n ", prefix_, "-net link add br0 type bridge"), &error_)) return;
    error_ = "";
    Must(absl::StrCat("-n ", prefix_, "-net link set br0 up"));
    for (int i = 1; i <= hosts; ++i) {
      Must(absl::StrCat("netns add ", Name(i)));
      made_.push_back(Name(i));
      Must(absl::StrCat("-n ", Name(i), " link add eth0 type veth peer name port", i, " netns ", prefix_, "-net"));
      Must(absl::StrCat("-n ", prefix_, "-net link set port", i, " master br0 up"));
      Must(absl::StrCat("-n ", Name(i), " addr add ", Address(i), "/24 dev eth0"));
      Must(absl::StrCat("-n ", Name(i), " link set eth0 up"));
      Must(absl::StrCat("-n ", Name(i), " link set lo up"));
    }
  }
  ~Network() {
    for (const std::string& name : made_) {
      Ip(absl::StrCat("netns del ", name));
      std::error_code error;
      std::filesystem::remove_all("/etc/netns/" + name, error);
    }
  }
  // Why there is none; "" where there is.
  const std::string& error() const { return error_; }
  std::string Name(int host) const { return absl::StrCat(prefix_, "-", host); }
  static std::string Address(int host) { return absl::StrCat("10.77.0.", host); }
  // The words of a program on that host.
  Words On(int host, const Words& words) const { return Words{kIp, "netns", "exec", Name(host)} + words; }
  // On that host: "route add ..".
  void Set(int host, const std::string& line) const { Must(absl::StrCat("-n ", Name(host), " ", line)); }
  // Its /etc/hosts.
  void SetHosts(int host, const std::string& text) const {
    const std::string folder = "/etc/netns/" + Name(host);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/hosts") << text;
    if (access("/etc/nsswitch.conf", F_OK) == 0) std::ofstream(folder + "/nsswitch.conf") << "hosts: files\n";
  }

 private:
  static void Must(const std::string& line) {
    std::string error;
    const bool done = Ip(line, &error);
    if (!done) std::fprintf(stderr, "%s\n", error.c_str());
    TP_CHECK(done);
  }
  const std::string prefix_;
  std::string error_;
  Words made_;
};

// The coordinator is on host 1, and so is tpctl.
class Hosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!network_.error().empty()) GTEST_SKIP() << "no network namespaces here: " << network_.error();
  }
  void StartCoordinator(const std::string& time_scale) {
    authority_ = std::make_unique<Authority>(folder_.path(), "ca", "IP:10.77.0.1");
    coordinator_ = std::make_unique<Process>(
        network_.On(1, Words{Program("tp-coordinator"), "--listen", "10.77.0.1:0", "--endpoint-file",
                             folder_.path() + "/endpoint", "--time-scale", time_scale, "--tls-ca", authority_->pem()} +
                           authority_->Sign("coordinator")));
    ASSERT_TRUE(Eventually([&] {
      std::ifstream file(folder_.path() + "/endpoint");
      return static_cast<bool>(std::getline(file, server_)) && !server_.empty();
    })) << coordinator_->ErrorsSoFar();
    client_ = Words{"--server", server_, "--tls-ca", authority_->pem()} + authority_->Sign("client");
    time_scale_ = time_scale;
  }
  Words WorkerWords(int host, const std::string& id, const std::string& collective_host) {
    return network_.On(
        host, Words{Program("tp-worker"), "--server", server_, "--id", id, "--threads", "1", "--model-root", "/",
                    "--time-scale", time_scale_, "--collective-host", collective_host, "--tls-ca", authority_->pem()} +
                  authority_->Sign("worker"));
  }
  // Starts one and waits until it is a member.
  void Join(int host, const std::string& id, const std::string& collective_host) {
    workers_.push_back(std::make_unique<Process>(WorkerWords(host, id, collective_host)));
    ASSERT_TRUE(Eventually([&] { return HostOf(id) != ""; }))
        << workers_.back()->ErrorsSoFar() << Tpctl({"workers"}).err;
  }
  // What a healthy worker advertises; "" where there is none.
  std::string HostOf(const std::string& id) {
    const CommandResult result = Tpctl({"workers", "--output-format", "json"});
    if (result.code != 0) return "";
    const nlohmann::json workers = result.json();
    for (const auto& worker : workers["workers"]) {
      if (worker["id"] == id && worker["healthy"]) return worker["host"];
    }
    return "";
  }
  CommandResult Tpctl(const Words& words) {
    return RunCommand(network_.On(1, Words{Program("tpctl")} + client_ + words));
  }
  CommandResult SubmitMlp(const std::string& name) {
    return Tpctl({"submit", Source("deploy/demo/mlp_sharding.textproto"), "--name", name, "--mesh", "tp=2"});
  }

  TemporaryFolder folder_;
  Network network_{3};
  std::unique_ptr<Authority> authority_;
  std::unique_ptr<Process> coordinator_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::string server_, time_scale_;
  Words client_;
};

TEST_F(Hosts, AModelOnTwoHostsGivesTheReference) {
  ASSERT_NO_FATAL_FAILURE(StartCoordinator("5"));
  ASSERT_NO_FATAL_FAILURE(Join(2, "two", "10.77.0.2"));
  ASSERT_NO_FATAL_FAILURE(Join(3, "three", "10.77.0.3"));
  EXPECT_EQ(HostOf("two"), "10.77.0.2");

  const std::string file = folder_.path() + "/kjv.pb";
  ASSERT_EQ(Tpctl({"import", Source("deploy/demo/kjv"), "--tp", "2", "--out", file}).code, 0);
  const CommandResult submitted = Tpctl({"submit", file, "--name", "kjv"});
  ASSERT_EQ(submitted.code, 0) << submitted.err;
  const auto one = nlohmann::json::parse(std::ifstream(Source("deploy/demo/kjv/reference.json")))["cases"][0];
  const CommandResult generated = Tpctl({"generate", "kjv", "--prompt", one["prompt"].get<std::string>(),
                                         "--max-new-tokens", "64", "--ignore-eos", "--output-format", "json"});
  ASSERT_EQ(generated.code, 0) << generated.err;
  EXPECT_EQ(generated.json()["token_ids"].get<std::vector<int64_t>>(), one["greedy"].get<std::vector<int64_t>>());

  const CommandResult mlp = SubmitMlp("mlp");
  ASSERT_EQ(mlp.code, 0) << mlp.err;
  const auto reference = ReadSafetensors(Source("deploy/demo/mlp.reference.safetensors"));
  ASSERT_TRUE(reference.ok());
  std::string x = "x=";
  for (int i = 0; i < 8; ++i) {
    char text[32];
    std::snprintf(text, sizeof text, "%s%.9g", i == 0 ? "" : ",", double{reference->at("x_1").data<float>()[i]});
    x += text;
  }
  const std::string answer = folder_.path() + "/y.safetensors";
  const CommandResult forward = Tpctl({"forward", "mlp", "--input", x, "--output", answer});
  ASSERT_EQ(forward.code, 0) << forward.err;
  const auto y = ReadSafetensors(answer);
  ASSERT_TRUE(y.ok()) << y.status();
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(y->begin()->second.data<float>()[i], reference->at("y_1").data<float>()[i], 1e-5);
  }
}

// Host 3 advertises an address that only itself knows.
TEST_F(Hosts, AWrongAddressFailsInTimeAndNamesBothWorkersAndAddresses) {
  ASSERT_NO_FATAL_FAILURE(StartCoordinator(kSlow ? "5" : "1"));
  network_.Set(3, "addr add 10.66.0.3/32 dev lo");
  ASSERT_NO_FATAL_FAILURE(Join(2, "two", "10.77.0.2"));
  ASSERT_NO_FATAL_FAILURE(Join(3, "three", "10.66.0.3"));
  // First there is no way to it, then one that swallows what is sent.
  for (const char* route : {"", "route add 10.66.0.0/24 via 10.77.0.1"}) {
    if (*route != '\0') network_.Set(2, route);
    const absl::Time began = absl::Now();
    const CommandResult submitted = SubmitMlp("mlp");
    const absl::Duration took = absl::Now() - began;
    EXPECT_EQ(submitted.code, 1) << submitted.out;
    EXPECT_THAT(submitted.err,
                AllOf(AnyOf(HasSubstr("UNAVAILABLE"), HasSubstr("DEADLINE_EXCEEDED")), HasSubstr("two"),
                      HasSubstr("three"), HasSubstr("10.77.0.2"), HasSubstr("10.66.0.3"), HasSubstr("did not reach")));
    if (!kSlow) EXPECT_LT(took, absl::Seconds(10)) << submitted.err;
    std::printf("told after %.1f s: %s", absl::ToDoubleSeconds(took), submitted.err.c_str());
  }
  EXPECT_NE(HostOf("two"), "");
  EXPECT_NE(HostOf("three"), "");
}

TEST_F(Hosts, LoopbackOfAnotherHostIsRefused) {
  ASSERT_NO_FATAL_FAILURE(StartCoordinator("5"));
  const CommandResult refused = RunCommand(WorkerWords(2, "two", "127.0.0.1"));
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("tp-worker: FAILED_PRECONDITION: worker 'two' joins from 10.77.0.2 but "
                                           "advertises 127.0.0.1"),
                                 HasSubstr("--collective-host")));
  EXPECT_THAT(coordinator_->ErrorsSoFar(), HasSubstr("two refused: "));
  EXPECT_EQ(HostOf("two"), "");
  // On the coordinator's own host it does, for meshes of that host.
  ASSERT_NO_FATAL_FAILURE(Join(1, "one", "127.0.0.1"));
  ASSERT_NO_FATAL_FAILURE(Join(2, "two", "10.77.0.2"));
  const CommandResult mixed = SubmitMlp("mlp");
  EXPECT_EQ(mixed.code, 1);
  EXPECT_THAT(mixed.err, AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("'one' at 127.0.0.1"),
                               HasSubstr("'two' at 10.77.0.2")));
  ASSERT_NO_FATAL_FAILURE(Join(3, "three", "10.77.0.3"));
  const CommandResult reached = SubmitMlp("mlp");
  EXPECT_EQ(reached.code, 0) << reached.err;
}

// Debian's /etc/hosts has the host's own name as 127.0.1.1.
TEST_F(Hosts, AHostsOwnNameOnLoopbackIsRefusedAtTheStart) {
  ASSERT_NO_FATAL_FAILURE(StartCoordinator("5"));
  network_.SetHosts(2, "127.0.0.1 localhost\n127.0.1.1 box.test box\n10.77.0.2 box-eth0\n10.77.0.3 other\n");
  const struct {
    std::string host;
    std::vector<std::string> texts;
  } wrong[] = {
      {"box", {"\"box\" resolves to 127.0.1.1", "give --collective-host an address of an interface"}},
      {"other", {"\"other\"", "10.77.0.3", "is not one of this machine's"}},
      {"10.77.0.3", {"\"10.77.0.3\" is not one of this machine's"}},
      {"nobody", {"collective address \"nobody\": "}},
      {"0.0.0.0", {"\"0.0.0.0\"", "give the one that the peers reach"}},
  };
  for (const auto& [host, texts] : wrong) {
    const CommandResult refused = RunCommand(WorkerWords(2, "two", host));
    EXPECT_EQ(refused.code, 1) << host;
    for (const std::string& text : texts) EXPECT_THAT(refused.err, HasSubstr(text)) << host;
  }
  ASSERT_NO_FATAL_FAILURE(Join(2, "two", "box-eth0"));
  EXPECT_EQ(HostOf("two"), "10.77.0.2");
}

}  // namespace
}  // namespace tp::testing
