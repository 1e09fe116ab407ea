// What tests steer the fakes with: injected failures, hangs, sticky errors, counts of calls.
#include <cstdlib>
#include <sstream>

#include "cudart_state.h"

namespace tp_fake {
namespace {

uint64_t EnvironmentNumber(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::strtoull(text, nullptr, 10);
}

void MakeDevices(Runtime& runtime, int count) {
  runtime.device_count = count;
  while (static_cast<int>(runtime.devices.size()) < count) runtime.devices.push_back(std::make_unique<Device>());
}

Runtime* Make() {
  auto* runtime = new Runtime;
  MakeDevices(*runtime, static_cast<int>(EnvironmentNumber("TP_FAKE_CUDA_DEVICES", 1)));
  runtime->memory = EnvironmentNumber("TP_FAKE_CUDA_MEMORY", uint64_t{4} << 30);
  if (const char* list = std::getenv("TP_FAKE_CUDA_FAIL")) {
    std::stringstream entries(list);
    for (std::string entry; std::getline(entries, entry, ',');) {
      std::stringstream fields(entry);
      Injection injection;
      char colon = 0;
      if (std::getline(fields, injection.function, ':') && fields >> injection.error >> colon >> injection.after)
        runtime->injections.push_back(injection);
    }
  }
  return runtime;
}

// Counts the call and takes the injection that is due.
int Injected(const char* function) {
  ++state.calls[function];
  int error = 0;
  for (auto it = state.injections.begin(); it != state.injections.end();) {
    if (it->function != function || it->after-- > 0) {
      ++it;
      continue;
    }
    if (error != 0) {  // two are due: the second is for the next call
      (it++)->after = 0;
      continue;
    }
    error = it->error;
    it = state.injections.erase(it);
  }
  return error;
}

}  // namespace

Runtime& State() {
  static Runtime* const runtime = Make();
  return *runtime;
}

cudaError_t Enter(const char* function, bool needs_device) {
  if (InHostFunction()) return cudaErrorNotPermitted;
  const std::lock_guard lock(state.mutex);
  ReapGraphMemory();
  if (const int error = Injected(function); error != 0) return static_cast<cudaError_t>(error);
  if (state.sticky != 0) return static_cast<cudaError_t>(state.sticky.load());
  if (needs_device && state.device_count == 0) return cudaErrorNoDevice;
  return cudaSuccess;
}

void SetSticky(cudaError_t error) {
  const std::lock_guard lock(state.mutex);
  if (state.sticky == 0) state.sticky = error;
  WakeStreams();
  state.progress.notify_all();
}

void FailNext(const char* function, int error, int after) {
  const std::lock_guard lock(state.mutex);
  state.injections.push_back({function, error, after});
}

int InjectedError(const char* function) {
  const std::lock_guard lock(state.mutex);
  return Injected(function);
}

int CallsOf(const char* function) {
  const std::lock_guard lock(state.mutex);
  const auto found = state.calls.find(function);
  return found == state.calls.end() ? 0 : found->second;
}

void Hang() {
  const std::lock_guard lock(state.mutex);
  state.hung = true;
}

void Resume() {
  const std::lock_guard lock(state.mutex);
  state.hung = false;
  WakeStreams();
  state.progress.notify_all();
}

void Reset(int devices) {
  {
    std::unique_lock lock(state.mutex);
    state.dropping = true;
  }
  Resume();
  std::unique_lock lock(state.mutex);
  for (int device = 0; device < static_cast<int>(state.devices.size()); ++device) DrainDevice(lock, device);
  while (!state.captures.empty()) EndCapture(state.captures.front());
  state.dropping = false;
  state.sticky = 0;
  state.injections.clear();
  state.calls.clear();
  state.memory = EnvironmentNumber("TP_FAKE_CUDA_MEMORY", uint64_t{4} << 30);
  MakeDevices(state, devices);
}

void SetMemory(size_t bytes) {
  const std::lock_guard lock(state.mutex);
  state.memory = bytes;
}

size_t DeviceBytes() {
  const std::lock_guard lock(state.mutex);
  ReapGraphMemory();
  size_t bytes = 0;
  for (const auto& [pointer, block] : state.blocks)
    if (block.kind != Block::kHost) bytes += block.bytes;
  return bytes;
}

size_t HostBytes() {
  const std::lock_guard lock(state.mutex);
  return state.host_bytes;
}

}  // namespace tp_fake
