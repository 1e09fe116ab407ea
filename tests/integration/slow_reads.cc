// Loaded into workers by a test (LD_PRELOAD): reads of files whose path contains $TP_SLOW_READS_PATH take a moment
// each, as those of a slow network file system do.
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
  if (const char* wanted = std::getenv("TP_SLOW_READS_PATH")) {
    char link[64], path[4096];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
      path[length] = '\0';
      if (std::strstr(path, wanted) != nullptr) usleep(100 * 1000);
    }
  }
  return next(fd, buffer, count, offset);
}
