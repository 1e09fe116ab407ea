#include "common/metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace tp {
namespace {

// When the machine was started, in seconds since 1970; 0 where it is not told.
double BootTime() {
  std::ifstream file("/proc/stat");
  std::string word;
  double seconds = 0;
  while (file >> word) {
    if (word == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

int OpenFiles() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] == '.' ? 0 : 1;
  closedir(folder);
  return count - 1;  // the folder's own
}

void ReadProcess(Metrics& metrics) {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  // The name, in brackets, may hold spaces; fields are counted from behind it: the state is the third.
  const size_t name = text.rfind(')');
  if (name == std::string::npos) return;
  std::istringstream fields(text.substr(name + 1));
  std::vector<std::string> words(std::istream_iterator<std::string>{fields}, {});
  constexpr size_t kUser = 11, kSystem = 12, kThreads = 17, kStart = 19, kVirtual = 20, kResident = 21;
  if (words.size() <= kResident) return;
  const auto number = [&](size_t index) { return std::stod(words[index]); };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  metrics.SetCounter("process_cpu_seconds_total", (number(kUser) + number(kSystem)) / ticks);
  metrics.SetGauge("process_threads", number(kThreads));
  metrics.SetGauge("process_start_time_seconds", BootTime() + number(kStart) / ticks);
  metrics.SetGauge("process_virtual_memory_bytes", number(kVirtual));
  metrics.SetGauge("process_resident_memory_bytes", number(kResident) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  metrics.SetGauge("process_open_fds", OpenFiles());
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) metrics.SetGauge("process_max_fds", static_cast<double>(limit.rlim_cur));
}

}  // namespace

MetricTable ProcessTable(const std::string& version) {
  using Type = MetricType;
  return {{"tp_build_info", Type::kGauge, "Always 1; the version stands in the label.", {{"version", {version}}}},
          {"process_cpu_seconds_total", Type::kCounter, "Processor time used, user and system, in seconds."},
          {"process_resident_memory_bytes", Type::kGauge, "Memory that lies in RAM, in bytes."},
          {"process_virtual_memory_bytes", Type::kGauge, "Size of the address space, in bytes."},
          {"process_start_time_seconds", Type::kGauge, "When the process was started, in seconds since 1970."},
          {"process_open_fds", Type::kGauge, "Open file descriptors."},
          {"process_max_fds", Type::kGauge, "Most file descriptors that it may open."},
          {"process_threads", Type::kGauge, "Threads."}};
}

void WatchProcess(Metrics* metrics) {
  metrics->gauges("tp_build_info").At({0}).Set(1);
  metrics->OnScrape([metrics] { ReadProcess(*metrics); });
}

}  // namespace tp
