// WriteQueue: the writes of one callback stream, one at a time, from any thread. gRPC aborts the process at a second
// StartWrite before OnWriteDone, and a write or Finish after the stream's end touches freed memory; this class rules
// both out. Example (a server's reactor):
//   queue_ = std::make_shared<WriteQueue<Response>>([this](const Response* r) { StartWrite(r); },
//                                                   [this](const absl::Status& s) { Finish(ToGrpcStatus(s)); });
//   void OnWriteDone(bool ok) override { queue_->OnWriteDone(ok); }
//   queue_->Push(response);  queue_->Close(status);   // from any thread, at any time while the queue is held
// A reactor lives until its finish was called, and that comes after the last write, so `start` and `finish` always find
// it alive. Thread-safe; calls out without its lock.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tp {

template <typename Message>
class WriteQueue {
 public:
  using Start = std::function<void(const Message*)>;
  using Finish = std::function<void(const absl::Status&)>;
  using Written = std::function<void(bool ok)>;

  WriteQueue(Start start, Finish finish) : start_(std::move(start)), finish_(std::move(finish)) {}

  // Appends; `written` is called once: with true when the message went out, with false when it never will. False where
  // the queue is closed.
  bool Push(Message message, Written written = nullptr) {
    const Message* first = nullptr;
    bool accepted = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!closed_) {
        accepted = true;
        entries_.push_back({std::move(message), std::move(written)});
        if (!writing_) {
          writing_ = true;
          first = &entries_.front().message;
        }
      }
    }
    if (first != nullptr) start_(first);
    if (!accepted && written) written(false);
    return accepted;
  }

  // No more writes: finishes with `status` after those that are queued. Later calls do nothing.
  void Close(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (closed_) return;
      closed_ = true;
      status_ = status;
      if (writing_) return;
    }
    finish_(status);
  }

  // Close() that drops what is queued and not started.
  void Abort(const absl::Status& status) {
    std::deque<Entry> dropped;
    bool finish = false;
    absl::Status first;
    {
      absl::MutexLock lock(&mutex_);
      if (!closed_) {
        status_ = status;
        finish = !writing_;
      }
      closed_ = true;
      while (entries_.size() > (writing_ ? 1 : 0)) {
        dropped.push_back(std::move(entries_.back()));
        entries_.pop_back();
      }
      first = status_;
    }
    for (Entry& entry : dropped) {
      if (entry.written) entry.written(false);
    }
    if (finish) finish_(first);
  }

  // The reactor's OnWriteDone. After a failed write nothing more is sent.
  void OnWriteDone(bool ok) {
    std::deque<Entry> ended;
    const Message* next = nullptr;
    bool finish = false;
    absl::Status status;
    {
      absl::MutexLock lock(&mutex_);
      ended.push_back(std::move(entries_.front()));
      entries_.pop_front();
      if (!ok) {
        while (!entries_.empty()) {
          ended.push_back(std::move(entries_.front()));
          entries_.pop_front();
        }
      }
      if (!entries_.empty()) {
        next = &entries_.front().message;
      } else {
        writing_ = false;
        finish = closed_;
        status = status_;
      }
    }
    if (next != nullptr) start_(next);
    // Before finishing: what waits for these may still use the stream's owner.
    for (Entry& entry : ended) {
      if (entry.written) entry.written(ok);
    }
    if (finish) finish_(status);
  }

  bool closed() const {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }
  // Messages that have not gone out.
  size_t pending() const {
    absl::MutexLock lock(&mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    Message message;
    Written written;
  };
  const Start start_;
  const Finish finish_;
  mutable absl::Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tp
