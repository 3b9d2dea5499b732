// host BACKEND ARGUMENTS..: a server that has nothing to do with torch, and loads a backend that has.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  void* backend = argc < 2 ? nullptr : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  void* run = backend ? dlsym(backend, "run") : nullptr;
  if (!run) {
    std::fprintf(stderr, "%s\n", argc < 2 ? "usage: host BACKEND ARGUMENTS.." : dlerror());
    return 2;
  }
  return reinterpret_cast<int (*)(int, char**)>(run)(argc - 1, argv + 1);
}
