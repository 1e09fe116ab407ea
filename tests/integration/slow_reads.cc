// Loaded into programs by tests (LD_PRELOAD): reads of files whose path contains $TP_SLOW_READS_PATH wait as long as
// the file $TP_SLOW_READS_GATE exists, as those of a network file system that hangs do. With $TP_SLOW_READS_AFTER only
// those from that offset on.
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" ssize_t pread64(int fd, void* buffer, size_t count, off64_t offset);
extern "C" ssize_t pread(int fd, void* buffer, size_t count, off_t offset) {
  return pread64(fd, buffer, count, offset);
}

extern "C" ssize_t pread64(int fd, void* buffer, size_t count, off64_t offset) {
  using Function = ssize_t (*)(int, void*, size_t, off64_t);
  static const Function next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pread64"));
  const char* wanted = std::getenv("TP_SLOW_READS_PATH");
  const char* gate = std::getenv("TP_SLOW_READS_GATE");
  const char* after = std::getenv("TP_SLOW_READS_AFTER");
  if (wanted != nullptr && gate != nullptr && (after == nullptr || offset >= std::atoll(after))) {
    char link[64], path[4096];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
      path[length] = '\0';
      while (std::strstr(path, wanted) != nullptr && access(gate, F_OK) == 0) usleep(10 * 1000);
    }
  }
  return next(fd, buffer, count, offset);
}
