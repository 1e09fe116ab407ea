// What our two users of oneDNN share. Only product.cc and activation_products.cc include it.
#pragma once

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/dtype.h"
#include "dnnl.hpp"

namespace tp::worker::one_dnn {

using DataType = dnnl::memory::data_type;
using Dims = dnnl::memory::dims;

inline DataType TypeOf(DType dtype) { return dtype == DType::kBF16 ? DataType::bf16 : DataType::f32; }

// Runs `body`; what oneDNN throws becomes INTERNAL.
template <typename Body>
absl::Status Guarded(const char* what, const Body& body) {
  try {
    return body();
  } catch (const dnnl::error& e) {
    return absl::InternalError(
        absl::StrCat("oneDNN: ", what, ": ", e.what(), " (status ", static_cast<int>(e.status), ")"));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", what));
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat(what, ": ", e.what()));
  }
}

}  // namespace tp::worker::one_dnn
