// The files of a TLS identity as flags name them: --tls-cert, --tls-key, --tls-ca (PEM). Example:
//   TlsFiles tls{.cert = "server.pem", .key = "server.key", .ca = "ca.pem"};  TP_RETURN_IF_ERROR(CheckTls(tls, true));
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tp {

// A server shows `cert`; with `ca` it takes only clients whose certificate that authority signed. A client trusts
// servers whose certificate `ca` signed (the system's authorities where empty), and shows `cert` where it has one.
struct TlsFiles {
  std::string cert, key, ca;
  bool any() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

// Reads the files: INVALID_ARGUMENT naming the flag where one is missing beside another or is not what it should be (a
// key of another certificate, too); NOT_FOUND for a file that can't be read; FAILED_PRECONDITION for an own certificate
// that has expired or is not valid yet. OK where none is named. `server`: a certificate and its key are required then.
absl::Status CheckTls(const TlsFiles& tls, bool server);

}  // namespace tp
