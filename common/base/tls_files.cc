#include "common/base/tls_files.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

absl::StatusOr<Bio> Open(const char* flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat(flag, " ", path, ": can't be read"));
  const std::string bytes = text.str();
  Bio bio(BIO_new(BIO_s_mem()));
  BIO_write(bio.get(), bytes.data(), static_cast<int>(bytes.size()));
  return bio;
}

absl::StatusOr<Certificate> ReadCertificate(const char* flag, const std::string& path) {
  TP_ASSIGN_OR_RETURN(const Bio bio, Open(flag, path));
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " ", path, ": no certificate in PEM form"));
  }
  return certificate;
}

}  // namespace

absl::Status CheckTls(const TlsFiles& tls, bool server) {
  if (!tls.any()) return absl::OkStatus();
  if (tls.cert.empty() != tls.key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key are given together");
  }
  if (server && tls.cert.empty()) return absl::InvalidArgumentError("--tls-ca needs --tls-cert and --tls-key here");
  if (!tls.ca.empty()) TP_RETURN_IF_ERROR(ReadCertificate("--tls-ca", tls.ca).status());
  if (tls.cert.empty()) return absl::OkStatus();
  TP_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate("--tls-cert", tls.cert));
  TP_ASSIGN_OR_RETURN(const Bio bio, Open("--tls-key", tls.key));
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (key == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("--tls-key ", tls.key, ": no private key in PEM form"));
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-key ", tls.key, " is not the key of the certificate ", tls.cert));
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return absl::FailedPreconditionError(absl::StrCat("--tls-cert ", tls.cert, " has expired"));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate.get())) > 0) {
    return absl::FailedPreconditionError(absl::StrCat("--tls-cert ", tls.cert, " is not valid yet"));
  }
  return absl::OkStatus();
}

}  // namespace tp
