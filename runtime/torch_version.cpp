// Asks the torch that is loaded which one it is, before anything of ours is registered with it.
//
// libtorch's C++ interface changes from one minor version to the next. With another one our registrations would end in a
// missing symbol, or write into objects of another layout. There is nobody to report to: it happens while the loader runs
// constructors. So this does what the loader does about a missing symbol: it says so, and ends the process.
// docs/decisions/build.md
#include <torch/version.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// torch 2.9 and later have it. Declared here, as a symbol that may be absent, because no header of 2.8 has it.
extern "C" __attribute__((weak)) uint64_t aoti_torch_abi_version();

namespace {

constexpr int BUILT = TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR, FIRST_THAT_TELLS = 209;

// Major and minor, as 213 for 2.13. What does not tell is taken for the one before the first that does.
int loaded() {
  if (!aoti_torch_abi_version) return FIRST_THAT_TELLS - 1;
  const uint64_t version = aoti_torch_abi_version();
  return static_cast<int>((version >> 56) * 100 + (version >> 48 & 0xff));
}

// Runs before the constructors of our other files. Symbols are bound at the first call (-z lazy), so that a missing one
// does not come first.
__attribute__((constructor(101))) void refuse_another_torch() {
  const int found = loaded();
  if (found == BUILT) return;
  std::fprintf(stderr,
               "ipex: expected torch %d.%d.*, which this libipex_runtime was built for, got torch %d.%d%s. "
               "Use the build of ipex for your torch.\n",
               BUILT / 100, BUILT % 100, found / 100, found % 100, aoti_torch_abi_version ? "" : " or an earlier one");
  std::_Exit(127);
}

}  // namespace
