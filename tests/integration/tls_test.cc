// TLS and mutual TLS on the coordinator's port: who is served and who is not; no plain text beyond loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "tests/support/authority.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A coordinator with `flags`, once it serves.
class Coordinator {
 public:
  Coordinator(const std::string& folder, const Words& flags, const std::string& listen = "127.0.0.1:0")
      : process_(Words{Program("tp-coordinator"), "--listen", listen, "--endpoint-file", folder + "/endpoint"} +
                 flags) {
    TP_CHECK(Eventually([&] {
      std::ifstream file(folder + "/endpoint");
      return static_cast<bool>(std::getline(file, server_)) && !server_.empty();
    }));
  }
  const std::string& server() const { return server_; }
  CommandResult Tpctl(const Words& words, const Words& tls) const {
    return RunCommand(Words{Program("tpctl"), "--server", server_, "--timeout", "20"} + tls + words);
  }

 private:
  std::string server_;
  Process process_;
};

TEST(Tls, AServerWithACertificateIsTrustedByItsAuthority) {
  TemporaryFolder folder;
  const Authority ca(folder.path(), "ca"), other(folder.path(), "other");
  const Coordinator coordinator(folder.path(), ca.Sign("server"));
  const CommandResult right = coordinator.Tpctl({"status"}, {"--tls-ca", ca.pem()});
  EXPECT_EQ(right.code, 0) << right.err;
  for (const Words& tls : {Words{}, Words{"--tls-ca", other.pem()}}) {
    const CommandResult wrong = coordinator.Tpctl({"status"}, tls);
    EXPECT_EQ(wrong.code, 1);
    EXPECT_THAT(wrong.err, AnyOf(HasSubstr("UNAVAILABLE"), HasSubstr("DEADLINE_EXCEEDED")));
    EXPECT_THAT(wrong.err, HasSubstr("--tls-ca"));
    EXPECT_THAT(wrong.err, StartsWith("tpctl: "));  // nothing of gRPC's own
  }
}

TEST(Tls, MutualTlsServesTheRightCertificateOnly) {
  TemporaryFolder folder;
  const Authority ca(folder.path(), "ca"), other(folder.path(), "other");
  const Words trust{"--tls-ca", ca.pem()};
  const Coordinator coordinator(folder.path(), ca.Sign("server") + trust);
  const Words client = trust + ca.Sign("client");
  Process worker(Words{Program("tp-worker"), "--server", coordinator.server(), "--id", "w", "--threads", "1",
                       "--model-root", "/"} +
                 trust + ca.Sign("worker"));
  ASSERT_TRUE(Eventually([&] {
    const CommandResult workers = coordinator.Tpctl({"workers", "--output-format", "json"}, client);
    return workers.code == 0 && workers.json()["workers"].size() == 1;
  }));
  EXPECT_EQ(coordinator.Tpctl({"submit", Source("deploy/demo/mlp.textproto"), "--mesh", "tp=1"}, client).code, 0);

  const CommandResult none = coordinator.Tpctl({"status"}, trust);
  EXPECT_EQ(none.code, 1) << none.out;
  const CommandResult wrong = coordinator.Tpctl({"status"}, trust + other.Sign("client"));
  EXPECT_EQ(wrong.code, 1) << wrong.out;
  // Its owner is told at once; the server refuses it too, were it sent.
  const CommandResult expired = coordinator.Tpctl({"status"}, trust + ca.Sign("expired", -1));
  EXPECT_EQ(expired.code, 1) << expired.out;
  EXPECT_THAT(expired.err, HasSubstr("has expired"));
  EXPECT_EQ(coordinator.Tpctl({"status"}, client).code, 0);
}

TEST(Tls, FilesAreCheckedAtTheStart) {
  TemporaryFolder folder;
  const Authority ca(folder.path(), "ca");
  const Words one = ca.Sign("one"), two = ca.Sign("two");
  const struct {
    Words flags;
    std::string text;
  } wrong[] = {
      {{"--tls-cert", one[1]}, "--tls-cert and --tls-key are given together"},
      {{"--tls-ca", ca.pem()}, "--tls-ca needs --tls-cert and --tls-key here"},
      {{"--tls-cert", one[1], "--tls-key", two[3]}, "is not the key of the certificate"},
      {{"--tls-cert", "/nowhere.pem", "--tls-key", one[3]}, "--tls-cert /nowhere.pem: can't be read"},
      {{"--tls-cert", one[3], "--tls-key", one[3]}, "no certificate in PEM form"},
      {ca.Sign("old", -1), "has expired"},
  };
  for (const auto& [flags, text] : wrong) {
    const CommandResult result = RunCommand(Words{Program("tp-coordinator"), "--listen", "127.0.0.1:0"} + flags);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr(text));
  }
}

TEST(Tls, NoPlainTextBeyondLoopback) {
  const CommandResult plain = RunCommand({Program("tp-coordinator"), "--listen", "0.0.0.0:0"});
  EXPECT_EQ(plain.code, 1);
  EXPECT_THAT(plain.err, HasSubstr("is not loopback and would serve plain text"));
  // With a certificate it serves.
  TemporaryFolder folder;
  const Authority ca(folder.path(), "ca");
  const Coordinator coordinator(folder.path(), ca.Sign("server"), "0.0.0.0:0");
  const std::string port = coordinator.server().substr(coordinator.server().rfind(':'));
  const CommandResult served =
      RunCommand({Program("tpctl"), "--server", "127.0.0.1" + port, "--tls-ca", ca.pem(), "status"});
  EXPECT_EQ(served.code, 0) << served.err;
}

}  // namespace
}  // namespace tp::testing
