// An authority and what it signs, made by openssl in a folder. Example:
//   Authority ca(folder.path(), "ca");   ca.pem();   ca.Sign("server") is {"--tls-cert", FILE, "--tls-key", FILE}
#pragma once

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/support/cluster.h"

namespace tp::testing {

class Authority {
 public:
  // `names`: subjectAltName of what it signs.
  Authority(std::string folder, std::string name, const std::string& names = "DNS:localhost,IP:127.0.0.1")
      : base_(folder + "/" + name), name_(std::move(name)) {
    Openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
             base_ + ".key", "-out", base_ + ".pem", "-days", "2", "-subj", "/CN=" + name_});
    std::ofstream(base_ + ".ext") << "subjectAltName=" + names;
  }
  std::string pem() const { return base_ + ".pem"; }
  // --tls-cert and --tls-key of a certificate that it signs.
  std::vector<std::string> Sign(const std::string& subject, int days = 2) const {
    const std::string path = absl::StrCat(base_, "-", subject);
    Openssl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path + ".key", "-out",
             path + ".csr", "-subj", "/CN=" + subject});
    Openssl({"x509", "-req", "-in", path + ".csr", "-CA", pem(), "-CAkey", base_ + ".key", "-CAcreateserial", "-days",
             absl::StrCat(days), "-extfile", base_ + ".ext", "-out", path + ".pem"});
    return {"--tls-cert", path + ".pem", "--tls-key", path + ".key"};
  }

 private:
  static void Openssl(std::vector<std::string> words) {
    words.insert(words.begin(), "/usr/bin/openssl");
    const CommandResult result = RunCommand(words);
    if (result.code != 0) std::fprintf(stderr, "openssl: %s\n", result.err.c_str());
    TP_CHECK(result.code == 0);
  }
  const std::string base_, name_;
};

}  // namespace tp::testing
