#include "server/rpc/request_metrics.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/server_context.h>

#include <algorithm>
#include <map>

#include "absl/time/clock.h"
#include "tp/v1/coordinator.pb.h"

namespace tp::server {
namespace {

class CallCounter : public grpc::experimental::Interceptor {
 public:
  CallCounter(CoordinatorMetrics* metrics, int rpc, grpc::ServerContextBase* context)
      : metrics_(metrics), rpc_(rpc), context_(context), began_(absl::Now()) {
    metrics_->RequestBegan(rpc_);
  }
  // A call that ended without a status was cut.
  ~CallCounter() override { End(absl::StatusCode::kCancelled); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      End(context_->IsCancelled() ? CauseOfCancel()
                                  : static_cast<absl::StatusCode>(methods->GetSendStatus().error_code()));
    }
    methods->Proceed();
  }

 private:
  // What a client whose call was cancelled sees, whatever is sent. Its deadline may reach us rounded up by 1 %, and its
  // own cancel before that.
  absl::StatusCode CauseOfCancel() const {
    const absl::Duration limit = absl::FromChrono(context_->deadline()) - began_;
    const absl::Duration rounded = std::max(absl::Milliseconds(20), limit / 100);
    const bool passed = limit < absl::Hours(24 * 365) && absl::Now() - began_ >= limit - rounded;
    return passed ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kCancelled;
  }
  void End(absl::StatusCode code) {
    if (ended_) return;
    ended_ = true;
    metrics_->RequestEnded(rpc_, code, absl::Now() - began_);
  }

  CoordinatorMetrics* const metrics_;
  const int rpc_;
  grpc::ServerContextBase* const context_;
  const absl::Time began_;
  bool ended_ = false;
};

class CallCounters : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallCounters(CoordinatorMetrics* metrics) : metrics_(metrics) {
    const std::vector<std::string> names = CoordinatorRpcs();
    for (size_t i = 0; i < names.size(); ++i) {
      rpcs_["/tp.v1.CoordinatorService/" + names[i]] = static_cast<int>(i);
    }
  }
  // nullptr: none.
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    const auto it = rpcs_.find(info->method());
    return it == rpcs_.end() ? nullptr : new CallCounter(metrics_, it->second, info->server_context());
  }

 private:
  CoordinatorMetrics* const metrics_;
  std::map<std::string, int> rpcs_;
};

}  // namespace

std::vector<std::string> CoordinatorRpcs() {
  const google::protobuf::FileDescriptor* file = v1::GetStatusRequest::descriptor()->file();
  const google::protobuf::ServiceDescriptor* service = file->FindServiceByName("CoordinatorService");
  std::vector<std::string> names;
  for (int i = 0; i < service->method_count(); ++i) names.push_back(service->method(i)->name());
  return names;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NewRequestMetrics(CoordinatorMetrics* metrics) {
  return std::make_unique<CallCounters>(metrics);
}

}  // namespace tp::server
