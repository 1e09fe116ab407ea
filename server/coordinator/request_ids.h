// Request ids of mutating calls: the same id with the same content gets the same result, with other content
// ALREADY_EXISTS. Bounded: the oldest finished ones are forgotten first. Example:
//   auto found = ids.Begin("r1", digest, "m");  // kNew: do it, then ids.Finish("r1", status)
// Thread-compatible.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/coordinator/events.h"

namespace tp::server {

class RequestIds {
 public:
  enum class State { kNew, kRunning, kFinished, kOther };
  struct Entry {
    std::string digest;
    std::string name;  // of the model; of an operation its number
    bool finished = false;
    absl::Status status;                                    // of a finished one
    std::shared_ptr<const OperationReply> reply = nullptr;  // of one about meshes and tensors
  };
  explicit RequestIds(size_t capacity = 1024) : capacity_(capacity) {}

  // "" is always new and never kept. kOther: the id is in use with another content.
  State Begin(const std::string& id, const std::string& digest, const std::string& name, Entry* found) {
    if (id.empty()) return State::kNew;
    const auto [it, inserted] = entries_.emplace(id, Entry{digest, name, false, {}, nullptr});
    if (inserted) return State::kNew;
    *found = it->second;
    if (it->second.digest != digest) return State::kOther;
    return it->second.finished ? State::kFinished : State::kRunning;
  }
  void Finish(const std::string& id, const absl::Status& status,
              std::shared_ptr<const OperationReply> reply = nullptr) {
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second.finished) return;
    it->second.finished = true;
    it->second.status = status;
    it->second.reply = std::move(reply);
    finished_.push_back(id);
    while (finished_.size() > capacity_) {
      entries_.erase(finished_.front());
      finished_.pop_front();
    }
  }

  // It was undone: the same id is new again.
  void Forget(const std::string& id) {
    const auto it = entries_.find(id);
    if (it != entries_.end() && !it->second.finished) entries_.erase(it);
  }

 private:
  size_t capacity_;
  std::map<std::string, Entry> entries_;
  std::deque<std::string> finished_;
};

}  // namespace tp::server
