// plain.cpp as a program that links ipex and uses its headers: built by hand with pkg-config.
#include <ipex/isa.h>
#include <ipex/memory.h>

#include <cstdio>

extern "C" int run(int argc, char** argv);

int main(int argc, char** argv) {
  const int failed = run(argc, argv);
  std::printf("%s %d\n", ipex::isa::name(ipex::isa::current()), ipex::memory_reserved() > 0);
  return failed;
}
