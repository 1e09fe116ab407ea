// StoreThread: the store's own thread; its answers go to the core as StoreFinished. Example: store.Put(token, name,
// blob);
#pragma once

#include <memory>
#include <string>

#include "server/rpc/core_loop.h"
#include "server/rpc/work_pool.h"
#include "server/store/store.h"

namespace tp::server {

// Thread-safe; keeps the order of its calls.
class StoreThread {
 public:
  StoreThread(std::unique_ptr<Store> store, CoreLoop* loop) : store_(std::move(store)), loop_(loop), thread_(1) {}

  void Put(uint64_t token, std::string name, std::string blob) {
    thread_.Add([this, token, name = std::move(name), blob = std::move(blob)] {
      loop_->Post(StoreFinished{token, store_->Put(name, blob)});
    });
  }
  void Erase(uint64_t token, std::string name) {
    thread_.Add([this, token, name = std::move(name)] { loop_->Post(StoreFinished{token, store_->Erase(name)}); });
  }
  // Ends after the call that runs.
  void Stop() { thread_.Stop(); }

 private:
  std::unique_ptr<Store> store_;
  CoreLoop* loop_;
  WorkPool thread_;
};

}  // namespace tp::server
